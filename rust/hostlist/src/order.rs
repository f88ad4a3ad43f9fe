//! Sorting by several numbers at once, packed into one.

/// Bits of a digit in radix sort.
const DIGIT_BITS: u32 = 11;
/// Items from which radix sort is used; fewer are sorted by comparison.
const MIN_RADIX_ITEMS: usize = 1 << 10;

/// The indices of some items, ordered by numbers of theirs and then by index.
///
/// The time is that of sorting integers if the numbers fit one integer together, as they usually do.
pub(crate) fn order<T, const N: usize>(
    items: &[T],
    numbers: impl Fn(&T) -> [u64; N],
) -> Vec<usize> {
    let mut greatest = [0; N];
    for item in items {
        for (greatest, number) in greatest.iter_mut().zip(numbers(item)) {
            *greatest |= number;
        }
    }
    let widths = greatest.map(|number| u64::BITS - number.leading_zeros());
    let index_bits = usize::BITS - items.len().leading_zeros();
    let bits = index_bits + widths.iter().sum::<u32>();
    if bits > u128::BITS {
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_cached_key(|&index| numbers(&items[index]));
        return order;
    }
    if bits > u64::BITS {
        let pack = |(index, item)| {
            let packed = numbers(item).into_iter().zip(widths);
            let packed = packed.fold(0, |packed, (number, width)| {
                shift(packed, width) | u128::from(number)
            });
            shift(packed, index_bits) | index as u128
        };
        let mut packed: Vec<u128> = items.iter().enumerate().map(pack).collect();
        packed.sort_unstable();
        let mask = (1 << index_bits) - 1;
        return packed
            .into_iter()
            .map(|packed| low(packed & mask))
            .collect();
    }
    let pack = |(index, item)| {
        let packed = numbers(item).into_iter().zip(widths);
        let packed = packed.fold(0, |packed, (number, width)| {
            (packed << (width % u64::BITS)) | number
        });
        (packed << index_bits) | index as u64
    };
    let mut packed: Vec<u64> = items.iter().enumerate().map(pack).collect();
    sort(&mut packed, index_bits, bits);
    let mask = (1 << index_bits) - 1;
    packed
        .into_iter()
        .map(|packed| low(u128::from(packed & mask)))
        .collect()
}

/// Shifts by up to all bits: a width of 128 leaves nothing.
fn shift(value: u128, bits: u32) -> u128 {
    value.checked_shl(bits).unwrap_or(0)
}

/// An index out of what it was packed into.
fn low(index: u128) -> usize {
    usize::try_from(index).unwrap_or_default()
}

/// Sorts numbers that are in order by the bits below `from`, and have none at or above `to`.
pub(crate) fn sort(numbers: &mut Vec<u64>, from: u32, to: u32) {
    if numbers.len() < MIN_RADIX_ITEMS {
        numbers.sort_unstable();
        return;
    }
    let mut other = vec![0; numbers.len()];
    let mut shift = from;
    while shift < to {
        let bucket = |number: u64| low(u128::from(number >> shift & ((1 << DIGIT_BITS) - 1)));
        let mut starts = [0_usize; 1 << DIGIT_BITS];
        for &number in &*numbers {
            starts[bucket(number)] += 1;
        }
        let mut start = 0;
        for count in &mut starts {
            start += std::mem::replace(count, start);
        }
        for &number in &*numbers {
            let start = &mut starts[bucket(number)];
            other[*start] = number;
            *start += 1;
        }
        std::mem::swap(numbers, &mut other);
        shift += DIGIT_BITS;
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::order;

    /// Numbers of as many bits, the low ones more often.
    fn number(bits: u32) -> impl Strategy<Value = u64> {
        let mask = u64::MAX >> (u64::BITS - bits);
        (any::<u64>(), 0..bits).prop_map(move |(number, shift)| (number & mask) >> shift)
    }

    proptest! {
        #[test]
        fn items_are_ordered_by_their_numbers(
            (count, bits) in (0_usize..3000, 1_u32..=64),
            seed in vec(any::<(u64, u64, u64)>(), 40),
        ) {
            let mask = u64::MAX >> (u64::BITS - bits);
            let items: Vec<[u64; 3]> = (0..count)
                .map(|index| {
                    let (a, b, c) = seed[index % seed.len()];
                    [a & 3, b.wrapping_mul(index as u64 | 1) & mask, c & mask]
                })
                .collect();
            let mut expected: Vec<usize> = (0..count).collect();
            expected.sort_by_key(|&index| items[index]);
            prop_assert_eq!(order(&items, |&numbers| numbers), expected);
        }

        #[test]
        fn numbers_of_all_bits_are_too_many_to_be_packed(items in vec([number(64), number(64)], 0..50)) {
            let mut expected: Vec<usize> = (0..items.len()).collect();
            expected.sort_by_key(|&index| items[index]);
            prop_assert_eq!(order(&items, |&numbers| numbers), expected);
        }
    }
}

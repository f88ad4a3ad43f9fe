//! Counts, against the list of their numbers.

use penstock_idset::IdSet;
use penstock_jobspec::{Count, Operator};
use proptest::prelude::*;

/// The numbers up to `limit`, one after the other, in a wide type.
fn numbers(min: u64, max: Option<u64>, operator: Operator, operand: u64, limit: u64) -> Vec<u32> {
    let mut all = Vec::new();
    let (mut number, limit) = (min, max.unwrap_or(limit).min(limit));
    while number <= limit {
        all.push(u32::try_from(number).unwrap());
        number = match operator {
            Operator::Add => number + operand,
            Operator::Multiply => number * operand,
            Operator::Power => number.saturating_pow(u32::try_from(operand).unwrap()),
        };
    }
    all
}

fn operator() -> impl Strategy<Value = Operator> {
    prop_oneof![
        Just(Operator::Add),
        Just(Operator::Multiply),
        Just(Operator::Power)
    ]
}

const MAX_NUMBER: u32 = 300;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_range_is_the_list_of_its_numbers(
        min in 2_u32..20,
        more in prop::option::of(0_u32..200),
        operator in operator(),
        operand in 2_u32..6,
    ) {
        let max = more.map(|more| min + more);
        let count = Count::range(min, max, operator, operand).unwrap();
        let all = numbers(min.into(), max.map(u64::from), operator, operand.into(), MAX_NUMBER.into());
        prop_assert_eq!(count.min(), min);
        prop_assert_eq!(count.max(), max.and(all.last().copied()));
        prop_assert_eq!(count.is_exact(), max.is_some() && all.len() == 1);
        for number in 0..=MAX_NUMBER {
            let below = all.iter().rev().find(|member| **member <= number).copied();
            prop_assert_eq!(count.contains(number), all.contains(&number));
            prop_assert_eq!(count.largest_up_to(number), below);
            let above = all.iter().find(|member| **member > number).copied();
            if above.is_some() || max.is_some() {
                prop_assert_eq!(count.next(number), above);
            }
        }
        let text = count.to_string();
        prop_assert_eq!(&text.parse::<Count>().unwrap(), &count);
        prop_assert_eq!(&format!("[{text}]").parse::<Count>().unwrap(), &count);
    }

    #[test]
    fn a_set_is_its_numbers(ids in prop::collection::btree_set(0_u32..40, 1..20)) {
        let set: IdSet = ids.iter().copied().collect();
        let count = Count::of(&set).unwrap();
        prop_assert_eq!(&count, &set.to_string().parse::<Count>().unwrap());
        prop_assert_eq!(&count, &count.to_string().parse::<Count>().unwrap());
        prop_assert_eq!(Some(count.min()), set.first());
        prop_assert_eq!(count.max(), set.last());
        for number in 0..=45 {
            prop_assert_eq!(count.contains(number), ids.contains(&number));
            prop_assert_eq!(count.largest_up_to(number), ids.range(..=number).next_back().copied());
            prop_assert_eq!(count.next(number), ids.range(number + 1..).next().copied());
        }
    }

    #[test]
    fn no_text_is_too_strange(text in "[-0-9:+*^,\\[\\]]{0,12}") {
        if let Ok(count) = text.parse::<Count>() {
            prop_assert_eq!(&count.to_string().parse::<Count>().unwrap(), &count);
        }
    }
}

#[test]
fn ends_of_what_a_number_holds() {
    let most = u32::MAX;
    let count = Count::range(1, None, Operator::Add, 2).unwrap();
    assert_eq!(count.largest_up_to(most), Some(most));
    assert_eq!(count.next(most), None);
    let count: Count = "2+:2:^".parse().unwrap();
    assert_eq!(count.largest_up_to(most), Some(65536));
    assert_eq!(count.next(65536), None);
    let count: Count = "1,4294967294".parse().unwrap();
    assert_eq!(count.largest_up_to(most), Some(most - 1));
    assert_eq!("4294967295".parse::<Count>().unwrap().max(), Some(most));
    assert!("4294967296".parse::<Count>().is_err());
    assert_eq!(Count::exactly(0).largest_up_to(0), Some(0));
    assert_eq!(Count::exactly(most).next(most - 1), Some(most));
}

#[test]
fn the_same_numbers_are_the_same_count() {
    for (one, other) in [
        ("1-4", "1-4:1:+"),
        ("1-6:2", "1-5:2"),
        ("5", "[5]"),
        ("3-3", "3"),
        ("4-5:3", "4"),
        ("2-5", "2,3-5"),
        ("2-9:2:*", "2-8:2:*"),
    ] {
        let (one, other): (Count, Count) = (one.parse().unwrap(), other.parse().unwrap());
        assert_eq!(one, other);
    }
    assert_eq!("1-6:2".parse::<Count>().unwrap().to_string(), "1-5:2");
    assert_eq!("2+:2:*".parse::<Count>().unwrap().to_string(), "2+:2:*");
    assert_eq!(Count::exactly(7).to_string(), "7");
}

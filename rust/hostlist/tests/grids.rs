//! Names with several numbers, lenient reading, the index: against models made of names.
use std::collections::HashSet;

use penstock_hostlist::Hostlist;
use proptest::collection::vec;
use proptest::prelude::*;

/// Names of few forms whose numbers meet, with zeroes in front or not.
fn name() -> impl Strategy<Value = String> {
    let number = || {
        prop_oneof![
            6 => (0_u32..4).prop_map(|n| n.to_string()),
            2 => (8_u32..12).prop_map(|n| n.to_string()),
            2 => (8_u32..12, 1_usize..4).prop_map(|(n, width)| format!("{n:0width$}")),
            1 => Just("18446744073709551615".to_owned()),
            1 => Just("9999999999999999999".to_owned()),
        ]
    };
    prop_oneof![
        (number(), number()).prop_map(|(a, b)| format!("x{a}c{b}")),
        (number(), number(), number()).prop_map(|(a, b, c)| format!("x{a}c{b}n{c}-ib0")),
        number().prop_map(|a| format!("n{a}")),
        number(),
        "[a-c]{1,2}",
    ]
}

fn names() -> impl Strategy<Value = Vec<String>> {
    let row = (0_u32..3, 0_u32..3, 1_u32..12).prop_map(|(x, first, count)| {
        let numbers = first..first + count;
        numbers.map(|c| format!("x{x}c{c}")).collect()
    });
    vec(prop_oneof![vec(name(), 0..8), row], 0..6).prop_map(|parts| parts.concat())
}

fn list(names: &[String]) -> Hostlist {
    Hostlist::try_from_hosts(names).expect("names")
}

fn sorted(list: &Hostlist) -> Vec<String> {
    let mut names: Vec<String> = list.iter().collect();
    names.sort();
    names
}

/// A bracket, with what it stands for.
fn bracket() -> impl Strategy<Value = (String, Vec<String>)> {
    (vec((0_u32..13, 0_u32..4), 1..3), 0_usize..3).prop_map(|(items, zeroes)| {
        let first = items[0].0.to_string().len() + zeroes;
        let width = if zeroes > 0 { first } else { 1 };
        let mut texts = Vec::new();
        let mut numbers = Vec::new();
        for (lo, more) in items {
            let hi = lo + more;
            texts.push(if more > 0 {
                format!("{lo:0width$}-{hi:0width$}")
            } else {
                format!("{lo:0width$}")
            });
            numbers.extend((lo..=hi).map(|n| format!("{n:0width$}")));
        }
        (format!("[{}]", texts.join(",")), numbers)
    })
}

proptest! {
    #[test]
    fn several_brackets_are_the_cross_product(
        prefix in "[a-c0]{0,2}",
        parts in vec((bracket(), "[a-c]{0,2}[0-2]{0,2}"), 2..4),
    ) {
        let mut text = prefix.clone();
        let mut hosts = vec![prefix];
        for ((bracket, numbers), behind) in parts {
            text = format!("{text}{bracket}{behind}");
            hosts = hosts
                .iter()
                .flat_map(|host| numbers.iter().map(move |number| format!("{host}{number}")))
                .map(|host| format!("{host}{behind}"))
                .collect();
        }
        let made: Hostlist = text.parse().unwrap();
        prop_assert_eq!(made.iter().collect::<Vec<_>>(), &hosts[..], "{}", text);
        prop_assert_eq!(&made, &list(&hosts));
        prop_assert_eq!(made.to_string().parse(), Ok(made));
    }

    #[test]
    fn folded_in_all_dimensions_the_hosts_are_the_same(names in names()) {
        let list = list(&names);
        let text = list.fold_nd();
        let again: Hostlist = text.parse().unwrap();
        prop_assert_eq!(sorted(&again), sorted(&list), "{}", &text);
        prop_assert_eq!(again.fold_nd(), text);
        let mut other = names;
        other.reverse();
        prop_assert_eq!(self::list(&other).fold_nd(), list.fold_nd());
    }

    #[test]
    fn a_whole_grid_is_one_box(x in 1_u32..5, c in 1_u32..12, n in 1_u32..4, seed in any::<u64>()) {
        let mut names = Vec::new();
        for i in 0..x * c * n {
            // Any order will do.
            let i = (u64::from(i) + seed % 1000) % u64::from(x * c * n);
            let (i, n) = (i / u64::from(n), i % u64::from(n));
            names.push(format!("x{}c{}n{n}", i / u64::from(c) + 8, i % u64::from(c)));
        }
        let bracket = |lo: u32, count: u32| match count {
            1 => lo.to_string(),
            count => format!("[{lo}-{}]", lo + count - 1),
        };
        let text = format!("x{}c{}n{}", bracket(8, x), bracket(0, c), bracket(0, n));
        prop_assert_eq!(list(&names).fold_nd(), text);
    }

    #[test]
    fn what_is_valid_is_read_alike_and_not_mended(names in names()) {
        for text in [list(&names).to_string(), list(&names).fold_nd()] {
            let (read, mended) = Hostlist::parse_lenient(&text).unwrap();
            prop_assert_eq!(&read, &text.parse().unwrap());
            prop_assert_eq!(mended, []);
        }
    }

    #[test]
    fn blanks_and_empty_items_count_for_nothing(
        names in vec(name(), 1..6),
        gaps in vec("[ \t\n]{0,2},[ \n,]{0,3}|[ \n]{1,2}", 6),
        around in "[ \n,]{0,3}",
    ) {
        let mut text = around.clone();
        for (name, gap) in names.iter().zip(&gaps) {
            text = format!("{text}{name}{gap}");
        }
        text += &around;
        let (read, mended) = Hostlist::parse_lenient(&text).unwrap();
        prop_assert_eq!(read, list(&names));
        prop_assert_eq!(mended.is_empty(), text.parse::<Hostlist>().is_ok(), "{:?}", text);
        prop_assert!(mended.iter().all(|mended| mended.offset < text.len()));
        prop_assert!(mended.is_sorted_by_key(|mended| mended.offset), "{:?} {:?}", text, mended);
    }

    #[test]
    fn no_text_is_a_danger_to_lenient_reading(text in "[a0-3,\\-\\[\\] \n]{0,16}|\\PC{0,8}") {
        match (text.parse::<Hostlist>(), Hostlist::parse_lenient(&text)) {
            (Ok(strict), Ok((lenient, mended))) => {
                prop_assert_eq!(&strict, &lenient);
                prop_assert_eq!(mended, []);
            }
            (Err(_), Ok((lenient, mended))) => {
                prop_assert!(!mended.is_empty());
                prop_assert_eq!(lenient.to_string().parse(), Ok(lenient));
            }
            (Err(strict), Err(lenient)) => {
                prop_assert!(strict.offset() <= lenient.offset());
            }
            (Ok(_), Err(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn the_index_finds_what_the_search_does(names in vec(name(), 30..80), others in vec(name(), 9), gone in 0_usize..29) {
        let mut list = list(&names);
        let mut model = names;
        for _ in 0..2 {
            // Twice and more: from the second search on there may be an index.
            for _ in 0..2 {
                for name in model.iter().chain(&others) {
                    let expected = model.iter().position(|other| other == name);
                    prop_assert_eq!(list.find(name), expected);
                    let later = model.iter().rposition(|other| other == name);
                    prop_assert_eq!(list.find_from(name, later.unwrap_or(0)), later);
                }
            }
            list.remove(gone);
            model.remove(gone);
        }
    }

    #[test]
    fn questions_about_two_lists(a in names(), b in names()) {
        let (left, right) = (list(&a), list(&b));
        let (some, other): (HashSet<_>, HashSet<_>) = (a.iter().collect(), b.iter().collect());
        prop_assert_eq!(left.has_intersection(&right), !some.is_disjoint(&other));
        prop_assert_eq!(left.is_subset(&right), some.is_subset(&other));
        let ranks: Vec<usize> = left.ranks(&right).into_iter().flatten().collect();
        let expected: Vec<usize> = (0..a.len()).filter(|&rank| b.contains(&a[rank])).collect();
        prop_assert_eq!(ranks, expected);
        prop_assert_eq!((&left | &right).unwrap(), left.union(&right).unwrap());
        prop_assert_eq!(&left & &right, left.intersection(&right));
        prop_assert_eq!(&left - &right, left.difference(&right));
        prop_assert_eq!((&left ^ &right).unwrap(), left.symmetric_difference(&right).unwrap());
    }
}

#[test]
fn questions_about_long_ranges_cost_nothing() {
    let all: Hostlist = "n[0-4294967294]".parse().unwrap();
    let some: Hostlist = "n[7-4000000000]".parse().unwrap();
    assert!(all.has_intersection(&some));
    assert!(some.is_subset(&all));
    assert!(!all.is_subset(&some));
    let ranks = all.ranks(&some);
    assert!(matches!(
        ranks[..],
        [std::ops::Range {
            start: 7,
            end: 4_000_000_001
        }]
    ));
    assert_eq!(all.fold_nd(), "n[0-4294967294]");
    let twice: Hostlist = "n[0-2000000000],n[1000000000-2000000001]".parse().unwrap();
    assert_eq!(twice.fold_nd(), "n[0-2000000001],n[1000000000-2000000000]");
}

#[test]
fn what_is_too_much_to_be_read_at_once_is_folded_in_fewer_dimensions() {
    let mut list = Hostlist::new();
    for x in 0..2 {
        // More ranges than one text may stand for, in two parts that it may.
        let part = format!("x[{}-{}]c[0,2]", x * 300_000, x * 300_000 + 299_999);
        list.extend_from_str(&part).unwrap();
    }
    let text = list.fold_nd();
    let again: Hostlist = text.parse().unwrap();
    assert_eq!(again, list);
    assert!(text.starts_with("x0c[0,2],x1c[0,2],"));
}

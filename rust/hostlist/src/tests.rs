//! Model tests: a list behaves as a `Vec<String>`, regardless of how its hosts are folded.
use std::cmp::Ordering;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::collection::vec;
use proptest::prelude::*;

use crate::Hostlist;

/// Counts and positions are right, and no number is shown otherwise than it is kept.
fn check(list: &Hostlist) {
    let mut end = 0;
    for entry in &list.entries {
        end += entry.len();
        assert_eq!(entry.end(), end);
        assert_eq!(entry.width, entry.first().width());
    }
    list.check();
    // A list may have some stems that no run has, but not ever more.
    assert!(list.stem_count() <= 2 * list.range_count() + 18, "{list}");
}

fn same(list: &Hostlist, model: &[String]) {
    check(list);
    assert_eq!(list.len(), model.len());
    assert!(list.iter().eq(model.iter().cloned()), "{list} {model:?}");
}

/// Numbers around the borders of width, zeroes and size.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0_u32..12).prop_map(|n| n.to_string()),
        3 => (0_u32..120, 1_usize..4).prop_map(|(n, width)| format!("{n:0width$}")),
        1 => (0_u64..3).prop_map(|n| (9_999_999_999_999_999_998 + n).to_string()),
        1 => (0_u64..3).prop_map(|n| (u64::MAX - n).to_string()),
        1 => (0_u64..3, 19_usize..24).prop_map(|(n, width)| format!("{n:0width$}")),
        1 => Just("18446744073709551616".to_owned()),
        1 => Just("99999999999999999999999".to_owned()),
    ]
}

/// Names of few stems, so that they meet, with digits in many places.
fn name() -> impl Strategy<Value = String> {
    let stem = prop::sample::select(vec!["n", "foo", "", "a1", "a10", "r2-n", "x1000c0s"]);
    let suffix = prop::sample::select(vec!["", "", "", "-ib", "-eth2", "0", "b0n1", ".c1.org"]);
    prop_oneof![
        8 => (stem, number(), suffix).prop_map(|(stem, number, suffix)| format!("{stem}{number}{suffix}")),
        1 => "[a-c]{1,2}",
        1 => "[!-+\\--Z^-~]{1,6}",
    ]
}

/// Lists with runs in them.
fn names() -> impl Strategy<Value = Vec<String>> {
    let run = (
        prop::sample::select(vec!["n", "foo", "a1", "r2-n"]),
        0_u32..110,
        1_u32..25,
        1_usize..4,
    )
        .prop_map(|(stem, start, count, width)| {
            (start..start + count)
                .map(|n| format!("{stem}{n:0width$}"))
                .collect()
        });
    vec(prop_oneof![vec(name(), 0..6), run], 0..8).prop_map(|parts| parts.concat())
}

/// A bracket expression with what it stands for.
fn expression() -> impl Strategy<Value = (String, Vec<String>)> {
    let stem = prop::sample::select(vec!["n", "", "a1", "n0", "n19", "99999999999999999999"]);
    let suffix = prop::sample::select(vec!["", "", "-ib", "-eth2", "0", "07"]);
    let start = prop_oneof![
        0_u64..15,
        95_u64..102,
        Just(9_999_999_999_999_999_995),
        Just(u64::MAX - 9)
    ];
    let item = (start, 0_u64..9);
    (stem, vec(item, 1..4), 0_usize..4, suffix).prop_map(|(stem, items, zeroes, suffix)| {
        let width = items[0].0.to_string().len() + zeroes;
        // Without a leading zero the first number leaves the others as they are.
        let width = if zeroes > 0 { width } else { 1 };
        let mut texts = Vec::new();
        let mut hosts = Vec::new();
        for (index, &(lo, more)) in items.iter().enumerate() {
            let first = if index == 0 {
                format!("{lo:0width$}")
            } else {
                lo.to_string()
            };
            texts.push(if more == 0 {
                first
            } else {
                format!("{first}-{}", lo + more)
            });
            hosts.extend((lo..=lo + more).map(|n| format!("{stem}{n:0width$}{suffix}")));
        }
        (format!("{stem}[{}]{suffix}", texts.join(",")), hosts)
    })
}

fn list(names: &[String]) -> Hostlist {
    Hostlist::try_from_hosts(names).unwrap()
}

fn hash(list: &Hostlist) -> u64 {
    let mut hasher = DefaultHasher::new();
    list.hash(&mut hasher);
    hasher.finish()
}

/// Each name once, in order of first occurrence.
fn unique<'a>(names: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut seen = HashSet::new();
    names
        .into_iter()
        .filter(|name| seen.insert(*name))
        .cloned()
        .collect()
}

/// A name taken apart by its definition: the last run of digits is the number.
fn parts(name: &str) -> (&str, &str, &str) {
    let Some(last) = name.rfind(|c: char| c.is_ascii_digit()) else {
        return (name, "", "");
    };
    let stem = name[..=last].trim_end_matches(|c: char| c.is_ascii_digit());
    // No more than 19 digits count.
    let stem = stem.len().max((last + 1).saturating_sub(19));
    (&name[..stem], &name[stem..=last], &name[last + 1..])
}

/// Texts as lists of characters and numbers: what natural order compares. A number is a zero with its length and
/// digits, without leading zeroes and with them.
fn tokens(text: &str) -> Vec<(char, usize, &str, usize)> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (token, after) = rest.split_at(
            rest.find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len())
                .max(1),
        );
        if first.is_ascii_digit() {
            let significant = token.trim_start_matches('0');
            tokens.push(('0', significant.len(), significant, token.len()));
        } else {
            tokens.push((first, 0, "", 0));
        }
        rest = after;
    }
    tokens
}

fn natural(a: &str, b: &str) -> Ordering {
    let key = |name| {
        let (prefix, number, suffix) = parts(name);
        let value: u64 = number.parse().unwrap_or(0);
        (tokens(prefix), value, number.len(), tokens(suffix))
    };
    key(a).cmp(&key(b))
}

proptest! {
    #[test]
    fn names_are_kept(names in names()) {
        let list = list(&names);
        same(&list, &names);
        prop_assert!(list.iter().rev().eq(names.iter().rev().cloned()));
        let text = list.to_string();
        let again: Hostlist = text.parse().unwrap();
        same(&again, &names);
        prop_assert_eq!(again.to_string(), text);
        let joined: Hostlist = names.join(",").parse().unwrap();
        same(&joined, &names);
    }

    #[test]
    fn brackets_are_what_they_say(expressions in vec(expression(), 1..4), others in names()) {
        let texts: Vec<String> = expressions.iter().map(|(text, _)| text.clone()).collect();
        let hosts: Vec<String> = expressions.iter().flat_map(|(_, hosts)| hosts.clone()).collect();
        let folded: Hostlist = texts.join(",").parse().unwrap();
        same(&folded, &hosts);
        same(&folded.to_string().parse().unwrap(), &hosts);
        let single = list(&hosts);
        prop_assert_eq!(&folded, &single);
        prop_assert_eq!(hash(&folded), hash(&single));
        let mut uniq = folded.clone();
        uniq.uniq();
        same(&uniq, &unique(&hosts));
        let mut sorted = folded.clone();
        sorted.sort().unwrap();
        let mut expected = hosts.clone();
        expected.sort_by(|a, b| natural(a, b));
        same(&sorted, &expected);
        let others = list(&others);
        prop_assert_eq!(folded.union(&others), single.union(&others));
        prop_assert_eq!(folded.intersection(&others), single.intersection(&others));
        prop_assert_eq!(others.difference(&folded), others.difference(&single));
        for (position, host) in hosts.iter().enumerate().step_by(3) {
            prop_assert_eq!(folded.find(host), hosts.iter().position(|other| other == host));
            prop_assert_eq!(folded.find_from(host, position), Some(position));
        }
    }

    #[test]
    fn questions_are_answered_as_by_the_model(names in names(), others in vec(name(), 5)) {
        let list = list(&names);
        for name in names.iter().chain(&others) {
            let positions: Vec<usize> = (0..names.len()).filter(|&i| names[i] == *name).collect();
            prop_assert_eq!(list.find(name), positions.first().copied());
            prop_assert_eq!(list.contains(name), !positions.is_empty());
            prop_assert_eq!(list.count(name), positions.len());
            prop_assert!(list.positions(name).eq(positions.iter().copied()));
        }
        for index in 0..names.len() + 2 {
            prop_assert_eq!(list.get(index), names.get(index).cloned());
        }
        prop_assert_eq!(list.first(), names.first().cloned());
        prop_assert_eq!(list.last(), names.last().cloned());
    }

    #[test]
    fn changes_are_those_of_the_model(
        names in names(),
        changes in vec((any::<prop::sample::Index>(), 0_usize..6, 0_usize..30, super::tests::names()), 0..12),
    ) {
        let (mut list, mut model) = (list(&names), names);
        for (index, change, more, names) in &changes {
            let start = index.index(model.len() + 1);
            let end = (start + more).min(model.len());
            match change {
                0 => {
                    list.remove_range(start..start + more);
                    model.drain(start..end);
                }
                1 => {
                    list.splice(start..start + more, &super::tests::list(names)).unwrap();
                    model.splice(start..end, names.iter().cloned());
                }
                2 => {
                    same(&list.slice(start..start + more), &model[start..end]);
                    list.truncate(start.max(20));
                    model.truncate(start.max(20));
                }
                3 => {
                    if let Some(name) = names.first() {
                        list.insert(start, name).unwrap();
                        model.insert(start, name.clone());
                    }
                }
                4 => {
                    let removed = list.remove(start);
                    prop_assert_eq!(removed, (start < model.len()).then(|| model.remove(start)));
                    prop_assert_eq!(list.pop(), model.pop());
                }
                _ => {
                    list.append(&super::tests::list(names)).unwrap();
                    model.extend(names.iter().cloned());
                }
            }
            same(&list, &model);
        }
        prop_assert_eq!(&list, &super::tests::list(&model));
        let positions: Vec<usize> = (0..model.len()).rev().step_by(2).collect();
        let picked: Vec<String> = positions.iter().map(|&i| model[i].clone()).collect();
        same(&list.select(positions).unwrap(), &picked);
        prop_assert!(list.select([model.len()]).is_none());
        let ranges = (0..model.len()).step_by(3).map(|start| start..start + 2);
        let (mut appended, mut picked) = (Hostlist::new(), Vec::new());
        for range in ranges.clone() {
            appended.append(&list.slice(range.clone())).unwrap();
            picked.extend_from_slice(&model[range.start..range.end.min(model.len())]);
        }
        let slices = list.slices(ranges.clone());
        same(&slices, &picked);
        prop_assert_eq!(slices.to_string(), appended.to_string());
        let (mut slicer, mut sliced) = (list.slicer(), Hostlist::new());
        for range in ranges.clone() {
            slicer.append_to(range, &mut sliced).unwrap();
        }
        prop_assert_eq!(&sliced, &slices);
        sliced.check();
        // From the end, and parts that overlap.
        let (mut sliced, mut picked) = (Hostlist::new(), Vec::new());
        for start in (0..model.len()).rev() {
            slicer.append_to(start..start + 3, &mut sliced).unwrap();
            picked.extend_from_slice(&model[start..model.len().min(start + 3)]);
        }
        same(&sliced, &picked);
        let single = (0..model.len()).step_by(2).map(|start| start..start + 1);
        let last = model.len().saturating_sub(2)..model.len() + 1;
        for ranges in [ranges.collect(), single.collect(), vec![0..2, 2..5], vec![last], vec![1..2, 4..7]] {
            let mut text = String::from("on ");
            list.write_slices(ranges.clone(), &mut text);
            prop_assert_eq!(text, format!("on {}", list.slices(ranges)));
        }
    }

    #[test]
    fn parts_of_one_run_are_written_as_their_list_is(
        (first, zeroes, count) in (0_u64..120, 0_usize..4, 1_usize..60),
        ranges in vec((0_usize..4, 0_usize..6), 0..10),
    ) {
        let names = (first..).take(count).map(|number| format!("n{number:0zeroes$}-ib"));
        let list: Hostlist = super::tests::list(&names.collect::<Vec<_>>());
        let mut end = 0;
        let ranges: Vec<_> = ranges
            .into_iter()
            .map(|(gap, len)| {
                let start = end + gap;
                end = start + len;
                start..end
            })
            .collect();
        let mut text = String::new();
        list.write_slices(ranges.clone(), &mut text);
        prop_assert_eq!(text, list.slices(ranges).to_string());
    }

    #[test]
    fn set_operations_are_those_of_the_model(a in names(), b in names()) {
        let (left, right) = (list(&a), list(&b));
        let mut uniq = left.clone();
        uniq.uniq();
        same(&uniq, &unique(&a));
        same(&left.union(&right).unwrap(), &unique(a.iter().chain(&b)));
        same(&left.intersection(&right), &unique(a.iter().filter(|name| b.contains(name))));
        same(&left.difference(&right), &unique(a.iter().filter(|name| !b.contains(name))));
        let expected = a.iter().filter(|name| !b.contains(name)).chain(b.iter().filter(|name| !a.contains(name)));
        same(&left.symmetric_difference(&right).unwrap(), &unique(expected));
        prop_assert_eq!(left == right, a == b);
    }

    #[test]
    fn deletion_is_that_of_the_model(a in names(), b in names()) {
        let mut model = a.clone();
        let mut gone = 0;
        for name in b.iter().chain(&b[b.len() / 2..]).chain(&a[a.len() / 3..]) {
            if let Some(index) = model.iter().position(|other| other == name) {
                model.remove(index);
                gone += 1;
            }
        }
        let mut other = list(&b);
        other.append(&list(&b[b.len() / 2..])).unwrap();
        other.append(&list(&a[a.len() / 3..])).unwrap();
        let mut list = list(&a);
        prop_assert_eq!(list.delete(&other), gone);
        same(&list, &model);
    }

    #[test]
    fn order_is_natural(names in names()) {
        let mut sorted = list(&names);
        sorted.sort().unwrap();
        let mut expected = names.clone();
        expected.sort_by(|a, b| natural(a, b));
        same(&sorted, &expected);
    }

    #[test]
    fn no_text_is_a_danger(text in "[a0-9,\\-\\[\\]]{0,16}|\\PC{0,8}|[a0\\[\\]\\-, \\x00\\n]{0,8}") {
        if let Ok(list) = text.parse::<Hostlist>() {
            check(&list);
            prop_assert_eq!(list.to_string().parse(), Ok(list));
        }
    }
}

fn parse(text: &str) -> Hostlist {
    text.parse().unwrap()
}

#[test]
fn ranges_cost_nothing() {
    let mut list = parse("foo[0-4294967294]");
    assert_eq!(list.len(), Hostlist::MAX_LEN);
    assert_eq!(list.find("foo4294967294"), Some(4_294_967_294));
    assert_eq!(list.get(99).as_deref(), Some("foo99"));
    assert_eq!(
        list.push("bar").unwrap_err().to_string(),
        "hostlist too long: expected at most 4294967295 hosts"
    );
    assert!(list.append(&parse("a,b")).is_err());
    assert!(list.union(&parse("a")).is_err());
    assert!(list.symmetric_difference(&parse("a")).is_err());
    assert_eq!(list.intersection(&parse("a,foo[7-9]")), parse("foo[7-9]"));
    assert_eq!(
        list.difference(&parse("foo[1-4294967293]")),
        parse("foo[0,4294967294]")
    );
    let same = parse("foo[0-9,10-4294967294]");
    assert_eq!(list, same);
    list.sort().unwrap();
    list.uniq();
    assert_eq!(list, same);
    assert_eq!(list.delete(&parse("foo[0-4294967293]")), 4_294_967_294);
    assert_eq!(list.to_string(), "foo4294967294");
}

#[test]
fn prefixes_that_end_in_digits_are_compared_by_range() {
    let list = parse("a1[000000000-999999999]");
    assert_eq!(list, parse("a[1000000000-1999999999]"));
    assert_eq!(
        list.difference(&parse("a[1000000001-1999999999]")),
        parse("a1000000000")
    );
}

#[test]
fn suffixes_with_digits_are_compared_one_by_one_and_thus_limited() {
    let mut list = parse("foo[0-599999]-ib0");
    let one = parse("foo3-ib0");
    assert_eq!(list.find("foo599999-ib0"), Some(599_999));
    assert!(list.append(&parse("foo[0-599999]-ib1")).is_err());
    assert_eq!(list.len(), 600_000);
    list.truncate(1000);
    assert_eq!(list.delete(&one), 1);
    assert_eq!(list.to_string(), "foo[0-2,4-999]-ib0");
}

#[test]
fn no_list_grows_beyond_what_its_text_may_say() {
    let mut list = parse("x[0-1048574]b0");
    list.push("x1048575b0").unwrap();
    list.push("x1048576b0").unwrap();
    list.push("x1048577b0").unwrap();
    check(&list);
    let text = list.to_string();
    assert!(text.starts_with("x[0-10485"), "{text}");
    assert_eq!(parse(&text), list);
}

#[test]
fn sorting_into_too_many_pieces_is_rejected() {
    let mut list = parse("foo[0-4000000000],bar,foo[0-200000000]");
    let before = list.clone();
    assert_eq!(
        list.sort().unwrap_err().to_string(),
        "hostlist too long: sorted, its ranges fall apart into too many hosts"
    );
    assert_eq!(list, before);
    check(&list);
}

#[test]
fn parts_are_even() {
    let list = parse("n[0-9],x");
    let parts: Vec<String> = list.split(4).iter().map(Hostlist::to_string).collect();
    assert_eq!(parts, ["n[0-2]", "n[3-5]", "n[6-8]", "n9,x"]);
    assert_eq!(list.split(100).len(), 11);
    assert_eq!(list.split(0), []);
    assert_eq!(Hostlist::new().split(3), []);
}

#[test]
fn a_stack_stays_cheap() {
    let mut list = parse("n[0-99]");
    for round in 0..2000 {
        list.push(&format!("h{}", round * 2)).unwrap();
    }
    while list.pop().is_some() {}
    check(&list);
    assert!(list.is_empty());
}

#[test]
fn numbers_in_other_places_fold_too() {
    let names = ["n1.a2.org", "n2.a2.org", "n3.a2.org", "x0-1", "x0-2"].map(String::from);
    assert_eq!(list(&names).to_string(), "n[1-3].a2.org,x0-[1-2]");
}

#[test]
fn stems_that_no_run_has_are_removed() {
    let texts: Vec<String> = (0..1000).map(|n| format!("a{n}b1")).collect();
    let text = texts.join(",");
    let parsed: Hostlist = text.parse().unwrap();
    assert_eq!(parsed.to_string(), "a[0-999]b1");
    check(&parsed);
    check(&list(&texts));
    let mut pushed = Hostlist::new();
    for name in &texts {
        pushed.push(name).unwrap();
        check(&pushed);
    }
    let mut queue: Hostlist = "n1,m1".parse().unwrap();
    for n in 0..1000 {
        queue.push(&format!("q{n}-{n}")).unwrap();
        queue.remove(0);
        check(&queue);
    }
    assert_eq!(queue.to_string(), "q998-998,q999-999");
    let mut sorted = list(&texts.iter().rev().cloned().collect::<Vec<_>>());
    sorted.sort().unwrap();
    assert_eq!(sorted, parsed);
    check(&sorted);
}

#[test]
fn a_part_has_the_stems_of_its_own_runs() {
    let texts: Vec<String> = (0..1000).map(|n| format!("m{n}-{n}")).collect();
    let many = list(&texts);
    let one = many.slice(500..501);
    same(&one, &texts[500..501]);
    same(&many.slice(3..999), &texts[3..999]);
    same(&many.intersection(&one), &texts[500..501]);
    same(&many.difference(&many.slice(1..1000)), &texts[..1]);
    same(
        &many.select([7, 3]).unwrap(),
        &["m7-7".to_owned(), "m3-3".to_owned()],
    );
    let mut left = many.clone();
    left.truncate(2);
    same(&left, &texts[..2]);
    assert_eq!(left.union(&many).unwrap(), many);
}

#[test]
fn lists_that_share_stems_change_apart() {
    let some: Hostlist = "a1,b1,c1".parse().unwrap();
    let (mut left, mut right) = (some.clone(), some.slice(1..3));
    left.push("d1").unwrap();
    right.push("e1").unwrap();
    left.append(&right).unwrap();
    assert_eq!(left.to_string(), "a1,b1,c1,d1,b1,c1,e1");
    assert_eq!(right.to_string(), "b1,c1,e1");
    assert_eq!(some.to_string(), "a1,b1,c1");
}

#[test]
fn numbers_have_their_digits() {
    let borders = (1..20).map(|power| 10_u64.pow(power));
    for number in borders
        .flat_map(|border| [border - 1, border])
        .chain([0, u64::MAX])
    {
        assert_eq!(
            usize::from(crate::stem::digits(number)),
            number.to_string().len()
        );
    }
}

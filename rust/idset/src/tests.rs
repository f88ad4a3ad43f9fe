//! Model tests: a set behaves as a `BTreeSet`, regardless of its form.
use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::collection::vec;
use proptest::prelude::*;

use crate::body::Body;
use crate::{Form, INLINE_IDS, IdSet};

type Model = BTreeSet<u32>;

/// The form is one that the set may have, and its counts are right.
fn check(set: &IdSet) {
    set.check_invariants();
    if matches!(set.form, Form::Small(_)) {
        assert!(set.last().is_none_or(|last| last < INLINE_IDS));
    }
    let ranges: Vec<_> = set.ranges().collect();
    assert_eq!(ranges.len(), set.range_count());
    for pair in ranges.windows(2) {
        assert!(pair[0].end() + 1 < *pair[1].start());
    }
}

fn same(set: &IdSet, model: &Model) {
    check(set);
    assert_eq!(set.len(), model.len() as u64);
    assert!(set.iter().eq(model.iter().copied()), "{set} {model:?}");
    assert!(set.iter().rev().eq(model.iter().rev().copied()));
    assert_eq!(set.first(), model.first().copied());
    assert_eq!(set.last(), model.last().copied());
    assert_eq!(set.is_empty(), model.is_empty());
}

/// Ids of all sorts: few and dense, around the borders of the forms, far apart, at the end.
fn id() -> impl Strategy<Value = u32> {
    prop_oneof![
        0_u32..140,
        100_u32..1500,
        0_u32..60_000,
        any::<u32>().prop_map(|id| id.min(IdSet::MAX_ID)),
        (0_u32..300).prop_map(|back| IdSet::MAX_ID - back),
    ]
}

/// Ids enough to reach every form and several blocks.
fn ids() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        vec(id(), 0..30),
        vec(0_u32..130, 0..60),
        vec(0_u32..4000, 0..1500),
        vec((0_u32..60_000).prop_map(|id| id * 70), 0..1500),
        vec((0_u32..60_000).prop_map(|id| id * 3), 0..800),
        (0_u32..200, 1_u32..900)
            .prop_map(|(start, count)| (start..start + count).map(|i| i * 2).collect()),
    ]
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u32),
    Remove(u32),
    InsertRange(u32, u32),
    RemoveRange(u32, u32),
    TakeFirst(usize),
    RemoveFirst,
    RemoveLast,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => id().prop_map(Op::Insert),
        4 => id().prop_map(Op::Remove),
        2 => (id(), 0_u32..400).prop_map(|(id, more)| Op::InsertRange(id, id.saturating_add(more))),
        2 => (id(), 0_u32..4000).prop_map(|(id, more)| Op::RemoveRange(id, id.saturating_add(more))),
        1 => (0_usize..40).prop_map(Op::TakeFirst),
        1 => Just(Op::RemoveFirst),
        1 => Just(Op::RemoveLast),
    ]
}

fn apply(op: &Op, set: &mut IdSet, model: &mut Model) {
    match *op {
        Op::Insert(id) => assert_eq!(set.insert(id), model.insert(id)),
        Op::Remove(id) => assert_eq!(set.remove(id), model.remove(&id)),
        Op::InsertRange(lo, hi) => {
            set.insert_range(lo..=hi);
            model.extend(lo..=hi.min(IdSet::MAX_ID));
        }
        Op::RemoveRange(lo, hi) => {
            set.remove_range(lo..=hi);
            model.retain(|id| !(lo..=hi).contains(id));
        }
        Op::TakeFirst(n) => {
            let expected = (n <= model.len()).then(|| {
                let next = model.iter().nth(n).copied();
                let rest = next.map_or_else(Model::new, |id| model.split_off(&id));
                std::mem::replace(model, rest)
            });
            let taken = set.take_first(n as u64);
            assert_eq!(taken.is_some(), expected.is_some());
            if let (Some(taken), Some(expected)) = (taken, expected) {
                same(&taken, &expected);
            }
        }
        Op::RemoveFirst => assert_eq!(
            set.first().is_some_and(|id| set.remove(id)),
            model.pop_first().is_some()
        ),
        Op::RemoveLast => assert_eq!(
            set.last().is_some_and(|id| set.remove(id)),
            model.pop_last().is_some()
        ),
    }
}

fn hash(set: &IdSet) -> u64 {
    let mut hasher = DefaultHasher::new();
    set.hash(&mut hasher);
    hasher.finish()
}

fn model(ids: &[u32]) -> Model {
    ids.iter().copied().collect()
}

proptest! {
    #[test]
    fn changes_are_those_of_the_model(start in ids(), ops in vec(op(), 0..60)) {
        let (mut set, mut model) = (start.iter().copied().collect::<IdSet>(), model(&start));
        same(&set, &model);
        for op in &ops {
            apply(op, &mut set, &mut model);
            check(&set);
            assert_eq!(set.len(), model.len() as u64);
        }
        same(&set, &model);
        let fresh: IdSet = model.iter().copied().collect();
        prop_assert_eq!(&set, &fresh);
        prop_assert_eq!(hash(&set), hash(&fresh));
    }

    #[test]
    fn one_by_one_is_as_good_as_at_once(ids in ids()) {
        let mut set = IdSet::new();
        for &id in &ids {
            set.insert(id);
        }
        same(&set, &model(&ids));
        for (index, &id) in ids.iter().enumerate() {
            set.remove(id);
            if index % 32 == 0 {
                check(&set);
            }
        }
        prop_assert!(set.is_empty());
    }

    #[test]
    fn algebra_is_that_of_the_model(a in ids(), b in ids()) {
        let (left, right): (IdSet, IdSet) = (a.iter().copied().collect(), b.iter().copied().collect());
        let (a, b) = (model(&a), model(&b));
        same(&(&left | &right), &(&a | &b));
        same(&(&left & &right), &(&a & &b));
        same(&(&left - &right), &(&a - &b));
        same(&(&left ^ &right), &(&a ^ &b));
        for (in_place, expected) in [
            (IdSet::union_with as fn(&mut IdSet, &IdSet), &a | &b),
            (IdSet::intersect_with, &a & &b),
            (IdSet::subtract, &a - &b),
        ] {
            let mut set = left.clone();
            in_place(&mut set, &right);
            same(&set, &expected);
        }
        prop_assert_eq!(left.is_subset(&right), a.is_subset(&b));
        prop_assert_eq!(left.is_superset(&right), a.is_superset(&b));
        prop_assert_eq!(left.is_disjoint(&right), a.is_disjoint(&b));
        prop_assert_eq!(left.intersection_len(&right), (&a & &b).len() as u64);
        prop_assert_eq!(left == right, a == b);
        prop_assert_eq!(left.cmp(&right), a.cmp(&b));
        let union = &left | &right;
        prop_assert!(left.is_subset(&union) && union.is_superset(&right));
        prop_assert_eq!(left.cmp(&union), a.cmp(&(&a | &b)));
    }

    #[test]
    fn questions_are_answered_as_by_the_model(ids in ids(), extra in vec(id(), 20)) {
        let (set, model) = (ids.iter().copied().collect::<IdSet>(), model(&ids));
        for &id in ids.iter().take(20).chain(&extra) {
            prop_assert_eq!(set.contains(id), model.contains(&id));
            prop_assert_eq!(set.next(id), model.range(id + 1..).next().copied());
            prop_assert_eq!(set.prev(id), model.range(..id).next_back().copied());
            let below = model.range(..id).count() as u64;
            prop_assert_eq!(set.count_below(id), below);
            prop_assert_eq!(set.find(id), model.contains(&id).then_some(below));
            prop_assert!(set.iter_range(id..=u32::MAX).eq(model.range(id..).copied()));
            prop_assert!(set.iter_range(0..=id).rev().eq(model.range(..=id).rev().copied()));
            let end = id.saturating_add(3).min(IdSet::MAX_ID);
            prop_assert_eq!(set.contains_range(id..=end), (id..=end).all(|id| model.contains(&id)));
        }
        let sorted: Vec<u32> = model.iter().copied().collect();
        for n in (0..sorted.len() + 2).step_by(1 + sorted.len() / 50) {
            prop_assert_eq!(set.nth(n as u64), sorted.get(n).copied());
            let end = (n + 37).min(sorted.len());
            let part: Model = sorted.get(n..end).unwrap_or_default().iter().copied().collect();
            same(&set.slice(n as u64..n as u64 + 37), &part);
            prop_assert!(set.slice(n as u64..n as u64).is_empty());
            prop_assert!(set.slice(n as u64..0).is_empty());
        }
    }

    #[test]
    fn parts_of_the_ids_are_those_that_an_iterator_yields(ids in ids(), from in id(), count in 0_usize..300) {
        let set: IdSet = ids.into_iter().collect();
        let expected: Vec<u32> = set.iter_range(from..=IdSet::MAX_ID).take(count).collect();
        prop_assert_eq!(set.ids_from(from, count), expected);
        if let Some(first) = set.first() {
            let expected: Vec<u32> = set.iter().take(count).collect();
            prop_assert_eq!(set.ids_from(first, count), expected);
        }
    }

    #[test]
    fn iterators_meet_in_the_middle(ids in ids(), turns in vec(any::<bool>(), 200)) {
        let (set, model) = (ids.iter().copied().collect::<IdSet>(), model(&ids));
        let (mut ours, mut theirs) = (set.iter(), model.iter().copied());
        let (mut ranges, mut front, mut back) = (set.ranges(), Vec::new(), Vec::new());
        for &turn in turns.iter().cycle().take(model.len() + 2) {
            prop_assert_eq!(ours.size_hint(), theirs.size_hint());
            if turn {
                prop_assert_eq!(ours.next(), theirs.next());
                front.extend(ranges.next());
            } else {
                prop_assert_eq!(ours.next_back(), theirs.next_back());
                back.extend(ranges.next_back());
            }
        }
        front.extend(back.into_iter().rev());
        prop_assert!(front.into_iter().eq(set.ranges()));
    }

    #[test]
    fn text_reads_back(ids in ids()) {
        let set: IdSet = ids.iter().copied().collect();
        for text in [set.to_text(), set.to_bracketed_text()] {
            prop_assert_eq!(text.parse(), Ok(set.clone()));
        }
        let expanded: Vec<String> = set.iter().map(|id| id.to_string()).collect();
        prop_assert_eq!(expanded.join(",").parse(), Ok(set));
    }

    #[test]
    fn no_text_is_read_otherwise_than_it_is_written(text in "[0-9,\\-\\[\\]]{0,12}|\\PC{0,6}") {
        if let Ok(set) = text.parse::<IdSet>() {
            let bare = text.strip_prefix('[').map_or(text.as_str(), |rest| rest.trim_end_matches(']'));
            let mut expected = HashSet::new();
            for part in bare.split(',').filter(|part| !part.is_empty()) {
                let (lo, hi) = part.split_once('-').unwrap_or((part, part));
                let (lo, hi) = (lo.parse::<u32>().unwrap(), hi.parse::<u32>().unwrap());
                if hi - lo < 10_000 {
                    expected.extend(lo..=hi);
                    prop_assert!((lo..=hi).all(|id| set.contains(id)));
                } else {
                    prop_assert!(set.contains_range(lo..=hi));
                    return Ok(());
                }
            }
            prop_assert_eq!(set.len(), expected.len() as u64);
        }
    }
}

#[test]
fn the_whole_of_it_is_one_range() {
    let all: IdSet = "0-4294967294".parse().unwrap();
    assert_eq!(all.len(), 4_294_967_295);
    assert_eq!(all.last(), Some(IdSet::MAX_ID));
    assert_eq!(all.next(IdSet::MAX_ID), None);
    assert_eq!(all.nth(4_294_967_294), Some(IdSet::MAX_ID));
    assert_eq!(all.find(IdSet::MAX_ID), Some(4_294_967_294));
    assert!(!all.contains(u32::MAX));
    assert_eq!(IdSet::with_range(0..=u32::MAX), all);
    let mut most = all.clone();
    most.remove(7);
    assert_eq!(most.to_string(), "0-6,8-4294967294");
    assert_eq!((&all - &most).to_string(), "7");
    assert_eq!((&all ^ &most).to_string(), "7");
    let mut first = all.clone();
    assert_eq!(
        first
            .take_first(1 << 31)
            .map(|set| set.to_string())
            .as_deref(),
        Some("0-2147483647")
    );
    assert_eq!(first.to_string(), "2147483648-4294967294");
    assert_eq!(all.iter().next_back(), Some(IdSet::MAX_ID));
    check(&all);
}

#[test]
fn the_greatest_number_is_no_id() {
    let mut set = IdSet::new();
    assert!(!set.insert(u32::MAX));
    assert!(set.is_empty());
    assert!(set.try_insert(u64::from(u32::MAX)).is_err());
    assert_eq!(
        set.try_insert(1 << 40).unwrap_err().to_string(),
        "invalid id 1099511627776: expected a number from 0 to 4294967294"
    );
    assert_eq!(set.try_insert(4_294_967_294), Ok(true));
    assert_eq!(
        [u32::MAX, 3].into_iter().collect::<IdSet>().to_string(),
        "3"
    );
    set.insert_range(u32::MAX..=u32::MAX);
    #[expect(clippy::reversed_empty_ranges, reason = "what is tested")]
    set.insert_range(9..=3);
    assert_eq!(set.len(), 1);
}

#[test]
fn small_sets_are_small() {
    assert!(size_of::<IdSet>() <= 24);
    let set: IdSet = "0-127".parse().unwrap();
    assert!(matches!(set.form, Form::Small([u64::MAX, u64::MAX])));
}

/// The form of the only chunk.
fn body(set: &IdSet) -> &Body {
    let Form::Large(chunks) = &set.form else {
        panic!("{set} is small")
    };
    let [chunk] = chunks.as_slice() else {
        panic!("{set} has several chunks")
    };
    &chunk.body
}

#[test]
fn chunks_change_their_form_with_what_they_hold() {
    let mut set: IdSet = (0..2000).map(|id| id * 2).collect();
    assert!(matches!(body(&set), Body::Bits(_)));
    for id in 0..1980 {
        assert!(set.remove(id * 2));
        check(&set);
    }
    assert!(matches!(body(&set), Body::Ids(_)));
    set.insert_range(3900..=65_000);
    assert!(matches!(body(&set), Body::Runs(_)));
    set.insert_range(0..=65_535);
    assert!(matches!(body(&set), Body::Full));
    set.remove(7);
    assert_eq!(set.to_string(), "0-6,8-65535");
    for id in (0..=65_535).step_by(3) {
        set.remove(id);
    }
    check(&set);
    assert!(matches!(body(&set), Body::Bits(_)));
    assert!(set.heap_bytes() < 9000);
}

/// Ids of many short runs in a few chunks, and in some the whole chunk or nothing.
fn many_runs(mut seed: u32) -> Model {
    let mut draw = |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) % below
    };
    let mut ids = Model::new();
    for chunk in 0..6 {
        let (from, end) = (chunk << 16, (chunk + 1) << 16);
        match draw(4) {
            0 => ids.extend(from..end),
            1 => {}
            _ => {
                let mut at = from + draw(100);
                while at < end {
                    let behind = (at + 1 + draw(90)).min(end);
                    ids.extend(at..behind);
                    at = behind + 1 + draw(150);
                }
            }
        }
    }
    ids
}

#[test]
fn many_runs_are_combined_as_their_ids_are() {
    for seed in 0..3 {
        let (a, b) = (many_runs(2 * seed), many_runs(2 * seed + 1));
        let sets = [&a, &b].map(|ids| ids.iter().copied().collect::<IdSet>());
        let [x, y] = &sets;
        same(&x.union(y), &a.union(&b).copied().collect());
        same(&x.intersection(y), &a.intersection(&b).copied().collect());
        same(&x.difference(y), &a.difference(&b).copied().collect());
        same(
            &x.symmetric_difference(y),
            &a.symmetric_difference(&b).copied().collect(),
        );
        for id in (0..7 << 16).step_by(61) {
            assert_eq!(x.contains(id), a.contains(&id), "{id}");
        }
        let mut other: IdSet = x.to_string().parse().unwrap();
        assert!(*x == other && (x == y) == (a == b));
        if let Some(&last) = a.last() {
            other.remove(last);
            other.insert(last + 1);
            assert!(*x != other);
        }
    }
}

#[test]
fn what_is_thin_or_wide_is_small() {
    let one: IdSet = "2147483647".parse().unwrap();
    assert!(one.heap_bytes() < 200);
    let all = IdSet::with_range(0..=IdSet::MAX_ID);
    assert!(all.heap_bytes() < 300);
    let thin: IdSet = (0..10_000).map(|id| id * 97 + id % 13).collect();
    assert!(thin.heap_bytes() < 22_000);
}

#[test]
fn a_set_may_grow_downwards() {
    let mut set: IdSet = (0..2000).map(|id| 1_000_000 + id * 2).collect();
    for id in (990_000..1_000_000).rev().filter(|id| id % 3 == 0) {
        set.insert(id);
        check(&set);
    }
    assert_eq!(set.len(), 2000 + 3334);
}

#[test]
fn parts_are_even() {
    let set: IdSet = "0-9,500".parse().unwrap();
    let parts: Vec<String> = set.split(4).iter().map(IdSet::to_string).collect();
    assert_eq!(parts, ["0-2", "3-5", "6-8", "9,500"]);
    assert_eq!(set.split(100).len(), 11);
    assert_eq!(set.split(0), []);
    assert_eq!(IdSet::new().split(3), []);
}

#[test]
fn formatting_minds_width() {
    let set: IdSet = "1-3".parse().unwrap();
    assert_eq!(format!("{set:>5}|{set:<4}|"), "  1-3|1-3 |");
    assert_eq!(IdSet::new().to_bracketed_text(), "[]");
    assert_eq!(set.to_bracketed_text(), "[1-3]");
}

proptest! {
    #[test]
    fn in_any_order_and_any_dress_the_ids_are_the_same(ids in ids(), zeroes in 0_usize..3, blank in "[ \t\n]{0,2}") {
        let texts: Vec<String> = ids.iter().map(|id| format!("{}{id}", "0".repeat(zeroes))).collect();
        let (set, _) = IdSet::parse_lenient(&texts.join(&format!(",{blank}"))).unwrap();
        prop_assert_eq!(set, ids.into_iter().collect::<IdSet>());
    }
}

#[test]
fn a_part_of_a_range_is_walked_backwards() {
    let set: IdSet = "65411-99078".parse().unwrap();
    for (lo, hi) in [
        (65_501, 65_501),
        (65_536, 65_536),
        (65_530, 65_540),
        (0, 70_000),
    ] {
        let ids: Vec<u32> = (lo.max(65_411)..=hi).rev().collect();
        assert!(set.iter_range(lo..=hi).rev().eq(ids));
        let range = set.ranges_within(lo..=hi).next_back();
        assert_eq!(range, Some(lo.max(65_411)..=hi));
    }
}

proptest! {
    #[test]
    fn operators_in_place_and_ranges_do_the_same(left in ids(), right in ids()) {
        let (a, b): (IdSet, IdSet) = (left.into_iter().collect(), right.into_iter().collect());
        for (changed, made) in [
            ({ let mut c = a.clone(); c |= &b; c }, &a | &b),
            ({ let mut c = a.clone(); c &= &b; c }, &a & &b),
            ({ let mut c = a.clone(); c -= &b; c }, &a - &b),
            ({ let mut c = a.clone(); c ^= &b; c }, &a ^ &b),
            ({ let mut c = a.clone(); c.extend(b.ranges()); c }, &a | &b),
        ] {
            check(&changed);
            prop_assert_eq!(changed, made);
        }
        prop_assert_eq!(a.ranges().rev().collect::<IdSet>(), a);
    }
}

/// Ids around those at which the number of digits or the digits before the last four change.
fn id_at_a_border() -> impl Strategy<Value = u32> {
    let powers = (0_u32..10).prop_map(|power| 10_u32.pow(power));
    let tens_of_thousands = (1_u32..400_000).prop_map(|high| high * 10_000);
    (prop_oneof![powers, tens_of_thousands], 0_u32..6)
        .prop_map(|(border, offset)| (border + offset).saturating_sub(3).min(IdSet::MAX_ID))
}

proptest! {
    #[test]
    fn text_has_the_digits_of_each_number(ids in vec(prop_oneof![id_at_a_border(), id()], 0..80)) {
        let set: IdSet = ids.into_iter().collect();
        let spans = set.ranges().map(|range| match (range.start(), range.end()) {
            (lo, hi) if lo == hi => lo.to_string(),
            (lo, hi) => format!("{lo}-{hi}"),
        });
        let text = spans.collect::<Vec<_>>().join(",");
        prop_assert_eq!(set.to_text(), text.clone());
        prop_assert_eq!(set.to_bracketed_text(), format!("[{text}]"));
        prop_assert_eq!(text.parse::<IdSet>().unwrap(), set.clone());
        prop_assert_eq!(format!("[{text}]").parse::<IdSet>().unwrap(), set);
    }

    /// Eight characters are read at once: none but digits may count as one, wherever the text ends.
    #[test]
    fn a_number_ends_before_the_first_other_character(
        ids in vec(prop_oneof![id_at_a_border(), id()], 1..5),
        other in any::<char>().prop_filter("other than digits", |other| !other.is_ascii_digit()),
        rest in "[0-9,]{0,12}",
    ) {
        let set: IdSet = ids.into_iter().collect();
        let text = format!("{set}{other}{rest}");
        match text.parse::<IdSet>() {
            Ok(_) => prop_assert!(matches!(other, ',' | '-')),
            Err(error) => {
                let offset = error.offset();
                prop_assert!(offset >= set.to_text().len());
                prop_assert!(matches!(other, ',' | '-') || offset == set.to_text().len());
            }
        }
    }
}

#[test]
fn members_are_found_wherever_the_chunks_lie() {
    for text in [
        "0-999999",
        "0-200000,262144,327680-400000",
        "65535-65536",
        "131072-500000,524288-524290,4294967294",
        "3000000000-3000500000,3000600000",
        "1,70000,140000,4294967294",
    ] {
        let set: IdSet = text.parse().unwrap();
        for range in text.split(',') {
            let (lo, hi) = range.split_once('-').unwrap_or((range, range));
            let (lo, hi): (u32, u32) = (lo.parse().unwrap(), hi.parse().unwrap());
            for id in [lo, lo + (hi - lo) / 2, hi] {
                assert!(set.contains(id), "{id} in {text}");
            }
            for id in [lo.wrapping_sub(1), hi + 1, lo ^ 0x8000_0000] {
                let is_inside = set.ranges().any(|run| run.contains(&id));
                assert_eq!(set.contains(id), is_inside, "{id} in {text}");
            }
        }
    }
}

#[test]
fn a_set_has_about_the_estimated_size() {
    let halves: IdSet = (0..300_000).filter(|id| id * 7 % 13 < 6).collect();
    let sparse: IdSet = (0..3_000).map(|id| id * 997).collect();
    let runs: IdSet = (0..3_000_000).filter(|id| id % 5_000 < 4_000).collect();
    let spread: IdSet = (0..60_000).map(|chunk| chunk << 16 | 7).collect();
    // Intersections with a run, ids and a bitmap that leave one id of many.
    let many: IdSet = (0..900).map(|id| id * 64).collect();
    let run = IdSet::with_range(6_400..=6_420);
    let ids: IdSet = (0..900).map(|id| id * 64 + u32::from(id != 100)).collect();
    let bits = &(&halves - &many) | &run;
    let [in_run, in_ids, in_bits] = [run, ids, bits].map(|other| &many & &other);
    for one in [&in_run, &in_ids, &in_bits] {
        assert_eq!(one.to_string(), "6400");
    }
    for set in [halves, sparse, runs, spread, in_run, in_ids, in_bits] {
        let (bytes, estimate) = (set.heap_bytes() as u64, set.estimated_bytes());
        // A list of chunks or ids that has grown has room for as many again, and for four at least.
        assert!(bytes <= 2 * estimate + 150, "{bytes} of {estimate}");
    }
    assert_eq!(IdSet::new().estimated_bytes(), 0);
}

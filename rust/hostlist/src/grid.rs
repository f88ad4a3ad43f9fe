//! Folding in as many dimensions as the names have numbers: `x[0-9]c[0-7]s[0-7]b0`.
//!
//! Names that differ only in their numbers are points of a grid. Points that differ only in the last number form a box,
//! boxes that differ only in the number before it form a larger box, and so on to the first number.
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::Hash;
use std::ops::Range;
use std::rc::Rc;

use crate::hash::Map;
use crate::intervals::Interval;
use crate::order::order;
use crate::piece::{Key, Keys, Piece, Pieces};
use crate::sort::natural;
use crate::stem::{MAX_DIGITS, NUMBER_MARK, Number, Stem, push_number};
use crate::{Hostlist, product};

/// The numbers of a box in one dimension: disjoint intervals, ascending.
type Values = Rc<[Interval]>;

/// Assigns numbers to items in the order of their first occurrence.
#[derive(Debug)]
struct Numbers<T>(Map<T, u32>, Vec<T>);

impl<T: Clone + Eq + Hash> Numbers<T> {
    fn new() -> Self {
        Self(Map::default(), Vec::new())
    }

    fn of(&mut self, thing: T) -> u32 {
        match self.0.get(&thing) {
            Some(&number) => number,
            None => self.add(thing),
        }
    }

    /// The number of an item, which is created only if it is new.
    fn of_ref<Q>(&mut self, thing: &Q) -> u32
    where
        Q: Eq + Hash + ?Sized,
        T: Borrow<Q> + for<'a> From<&'a Q>,
    {
        match self.0.get(thing) {
            Some(&number) => number,
            None => self.add(thing.into()),
        }
    }

    fn add(&mut self, thing: T) -> u32 {
        let number = u32::try_from(self.1.len()).expect("there are no more than 32 bits count");
        self.0.insert(thing.clone(), number);
        self.1.push(thing);
        number
    }

    fn get(&self, number: u32) -> &T {
        &self.1[number as usize]
    }
}

/// The properties common to all names of a grid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Class {
    /// The occurrence of its hosts that it holds, counted from 0.
    layer: u32,
    /// Number of the names with marks in place of their numbers.
    form: u32,
    /// The digits of each number where some of the form have zeroes in front, else 1.
    widths: Box<[u8]>,
}

/// Writes the marked form of a stem's names, and adds the numbers in front of the last one.
fn mark(stem: &Stem, form: &mut String, numbers: &mut Vec<Number>) {
    form.clear();
    let mut rest = stem.prefix();
    while let Some(start) = rest.bytes().position(|byte| byte.is_ascii_digit()) {
        let (before, digits) = rest.split_at(start);
        let end = digits.bytes().position(|byte| !byte.is_ascii_digit());
        let end = end.unwrap_or(digits.len());
        form.push_str(before);
        rest = &digits[end..];
        // Digits adjacent to the last number belong to it, and remain in the text.
        let apart = !rest.is_empty() && end <= usize::from(MAX_DIGITS);
        match Number::read(&digits[..end]).filter(|_| apart) {
            Some(number) => {
                form.push(NUMBER_MARK);
                numbers.push(number);
            }
            None => form.push_str(&digits[..end]),
        }
    }
    form.push_str(rest);
    if stem.is_numbered() {
        form.push(NUMBER_MARK);
        form.push_str(stem.suffix());
    }
}

/// A stem as a line of its grid.
struct Line {
    form: u32,
    /// Which of all numbers are its own.
    numbers: Range<usize>,
}

/// The numbers of a box from some dimension on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tail {
    values: u32,
    next: Option<u32>,
}

/// A number after others: the index of the point before it, and its own value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Point {
    before: u32,
    value: u64,
}

/// Some hosts with the same numbers in front.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Number of the point whose coordinates are the numbers in front; [`NO_POINT`] if there are none.
    point: u32,
    tail: u32,
}

/// The boxes of one class.
struct Grid {
    class: Class,
    rows: Vec<Row>,
}

/// Puts rows into the grids of their classes.
struct Sorter {
    classes: Numbers<Class>,
    /// The class of the first occurrences without leading zeroes, by form.
    plain: Vec<Option<u32>>,
    grids: Vec<Grid>,
}

impl Sorter {
    fn put(
        &mut self,
        layer: u32,
        form: u32,
        padded: &[bool],
        lens: impl Iterator<Item = u8>,
        row: Row,
    ) {
        let is_plain = layer == 0 && !padded.contains(&true);
        let known = self.plain[form as usize].filter(|_| is_plain);
        let number = known.unwrap_or_else(|| {
            let widths = padded.iter().zip(lens);
            let widths = widths.map(|(&padded, len)| if padded { len } else { 1 });
            let widths = widths.collect();
            self.classes.of(Class {
                layer,
                form,
                widths,
            })
        });
        if is_plain {
            self.plain[form as usize] = Some(number);
        }
        if number as usize == self.grids.len() {
            self.grids.push(Grid {
                class: self.classes.get(number).clone(),
                rows: Vec::new(),
            });
        }
        self.grids[number as usize].rows.push(row);
    }
}

struct Folder {
    forms: Numbers<String>,
    /// For each form whether its numbers show zeroes in front, by place.
    padded: Vec<Vec<bool>>,
    /// The numbers of all lines.
    numbers: Vec<Number>,
    values: Numbers<Values>,
    tails: Numbers<Tail>,
    points: Numbers<Point>,
}

/// Points have this in front of their first number.
const NO_POINT: u32 = u32::MAX;

impl Folder {
    fn new() -> Self {
        Self {
            forms: Numbers::new(),
            padded: Vec::new(),
            numbers: Vec::new(),
            values: Numbers::new(),
            tails: Numbers::new(),
            points: Numbers::new(),
        }
    }

    /// Splits stems into numbers and text; records which numbers have leading zeroes.
    fn lines(&mut self, stems: &[impl AsRef<Stem>], pieces: &[(Key, Piece<'_>)]) -> Vec<Line> {
        let mut form = String::new();
        let line = |stem: &_| {
            let start = self.numbers.len();
            mark(AsRef::<Stem>::as_ref(stem), &mut form, &mut self.numbers);
            let form = self.forms.of_ref(form.as_str());
            let numbers = &self.numbers[start..];
            if self.padded.len() <= form as usize {
                self.padded.push(vec![false; numbers.len() + 1]);
            }
            let padded = &mut self.padded[form as usize];
            for (padded, number) in padded.iter_mut().zip(numbers) {
                *padded |= number.width() > 1;
            }
            Line {
                form,
                numbers: start..self.numbers.len(),
            }
        };
        let lines: Vec<Line> = stems.iter().map(line).collect();
        for (key, piece) in pieces {
            let first = Number {
                value: piece.lo,
                len: piece.len,
            };
            let form = lines[key.stem as usize].form as usize;
            if first.width() > 1
                && let Some(padded) = self.padded[form].last_mut()
            {
                *padded = true;
            }
        }
        lines
    }

    fn tail(&mut self, values: &[Interval], next: Option<u32>) -> u32 {
        let values = self.values.of_ref(values);
        self.tails.of(Tail { values, next })
    }

    /// Makes the rows of a list: each with all the last numbers that go with those in front.
    fn grids(&mut self, list: &Hostlist) -> Vec<Grid> {
        let mut keys = Keys::default();
        let mut pieces: Vec<(Key, Piece<'_>)> = Pieces::new(list.as_runs())
            .map(|piece| (keys.key(&piece), piece))
            .collect();
        let lines = self.lines(keys.stems(), &pieces);
        for (key, _) in &mut pieces {
            let padded = &self.padded[lines[key.stem as usize].form as usize];
            if padded.last() == Some(&false) {
                key.len = 1;
            }
        }
        let order = order(&pieces, |(key, piece)| {
            [key.stem.into(), key.len.into(), piece.lo]
        });
        let mut sorter = Sorter {
            classes: Numbers::new(),
            plain: vec![None; self.padded.len()],
            grids: Vec::new(),
        };
        let mut intervals = Vec::new();
        for run in order.chunk_by(|&a, &b| pieces[a].0 == pieces[b].0) {
            let key = pieces[run[0]].0;
            let line = &lines[key.stem as usize];
            let numbers = &self.numbers[line.numbers.clone()];
            let points = &mut self.points;
            let point = numbers.iter().fold(NO_POINT, |before, number| {
                let value = number.value;
                points.of(Point { before, value })
            });
            intervals.clear();
            intervals.extend(run.iter().map(|&index| pieces[index].1.numbers()));
            let mut put = |layer, values: &[Interval]| {
                let tail = self.tail(values, None);
                let padded = &self.padded[line.form as usize];
                let lens = self.numbers[line.numbers.clone()].iter();
                let lens = lens.map(|number| number.len).chain([key.len]);
                sorter.put(layer, line.form, padded, lens, Row { point, tail });
            };
            if let [_] = intervals[..] {
                put(0, &intervals);
                continue;
            }
            for (layer, values) in (0..).zip(layers(&intervals)) {
                put(layer, &values);
            }
        }
        sorter.grids
    }

    /// Joins the rows of a grid to boxes, from the last number to the first.
    fn fold(&mut self, grid: &mut Grid) {
        for _ in 1..grid.class.widths.len() {
            let points = &self.points;
            let rows: Vec<(Point, u32)> = grid
                .rows
                .iter()
                .map(|row| (*points.get(row.point), row.tail))
                .collect();
            let order = order(&rows, |&(point, tail)| {
                // Points without a preceding number share that fact.
                let before = if point.before == NO_POINT {
                    0
                } else {
                    point.before
                };
                [before.into(), tail.into(), point.value]
            });
            grid.rows.clear();
            let mut values: Vec<Interval> = Vec::new();
            for run in order
                .chunk_by(|&a, &b| (rows[a].0.before, rows[a].1) == (rows[b].0.before, rows[b].1))
            {
                values.clear();
                for &index in run {
                    let value = rows[index].0.value;
                    match values.last_mut() {
                        Some(last) if last.hi + 1 == value => last.hi = value,
                        _ => values.push(Interval::one(value)),
                    }
                }
                let (point, tail) = rows[run[0]];
                let tail = self.tail(&values, Some(tail));
                grid.rows.push(Row {
                    point: point.before,
                    tail,
                });
            }
        }
    }

    /// The numbers of a box, from the first dimension to the last.
    fn dimensions(&self, row: Row) -> Vec<&[Interval]> {
        let tails = std::iter::successors(Some(row.tail), |&tail| self.tails.get(tail).next);
        tails
            .map(|tail| &**self.values.get(self.tails.get(tail).values))
            .collect()
    }

    fn compare(&self, a: &Class, b: &Class) -> Ordering {
        let layer = a.layer.cmp(&b.layer);
        let form = || natural(self.forms.get(a.form), self.forms.get(b.form));
        layer.then_with(form).then_with(|| a.widths.cmp(&b.widths))
    }
}

/// Writes boxes; splits those of several dimensions that could not be read again.
struct Writer {
    text: String,
    budget: product::Budget,
}

impl Writer {
    fn put(&mut self, form: &str, widths: &[u8], dimensions: &[&[Interval]]) {
        let count = |values: &[Interval]| {
            let counts = values.iter().map(|Interval { lo, hi }| hi - lo + 1);
            counts.sum::<u64>()
        };
        let brackets: Vec<usize> = (0..dimensions.len())
            .filter(|&index| count(dimensions[index]) > 1)
            .collect();
        let [outer @ .., last] = &brackets[..] else {
            return self.put_box(form, widths, dimensions);
        };
        let parts = outer
            .iter()
            .map(|&index| count(dimensions[index]))
            .product::<u64>();
        // Widths and values are those of names that have been read: none is longer than this.
        let name_len = form.len() + dimensions.len() * 20;
        let behind = if *last + 1 < dimensions.len() {
            count(dimensions[*last])
        } else {
            0
        };
        let ranges = dimensions[*last].len() as u64;
        if (outer.is_empty() || self.budget.take(parts, ranges, name_len as u64))
            && self.budget.take_suffixed(parts * behind)
        {
            return self.put_box(form, widths, dimensions);
        }
        // The first dimension is written out number by number.
        let first = brackets[0];
        for value in dimensions[first]
            .iter()
            .flat_map(|&Interval { lo, hi }| lo..=hi)
        {
            let one = [Interval::one(value)];
            let mut some: Vec<&[Interval]> = dimensions.to_vec();
            some[first] = &one;
            self.put(form, widths, &some);
        }
    }

    fn put_box(&mut self, form: &str, widths: &[u8], dimensions: &[&[Interval]]) {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        let mut numbers = dimensions.iter().zip(widths);
        for (index, part) in form.split(NUMBER_MARK).enumerate() {
            if index > 0
                && let Some((values, &width)) = numbers.next()
            {
                self.put_values(values, width);
            }
            self.text.push_str(part);
        }
    }

    fn put_values(&mut self, values: &[Interval], width: u8) {
        if let [Interval { lo, hi }] = values
            && lo == hi
        {
            return push_number(&mut self.text, *lo, width);
        }
        for (index, &Interval { lo, hi }) in values.iter().enumerate() {
            self.text.push(if index == 0 { '[' } else { ',' });
            push_number(&mut self.text, lo, width);
            if lo < hi {
                self.text.push('-');
                push_number(&mut self.text, hi, width);
            }
        }
        self.text.push(']');
    }
}

impl Hostlist {
    /// Returns the shortest text that this crate finds for the hosts, with a pair of brackets for every number that
    /// varies: `x[1000-1010]c[0-7]s[0-7]b0`.
    ///
    /// The text stands for the same hosts, equally often, but in another order: names of one form are adjacent, in
    /// natural order of the forms and of their first hosts. RFC 29 defines one pair of brackets in a name: use
    /// [`to_string`](ToString::to_string) if other software reads the text.
    ///
    /// Names that would exceed the limits of reading (see [`Hostlist`]) are written in fewer dimensions.
    ///
    /// ```
    /// use penstock_hostlist::Hostlist;
    ///
    /// let blades: Hostlist = "x0c1,x1c0,x0c0,x1c1,login".parse()?;
    /// assert_eq!(blades.fold_nd(), "login,x[0-1]c[0-1]");
    /// # Ok::<(), penstock_hostlist::Error>(())
    /// ```
    #[must_use]
    pub fn fold_nd(&self) -> String {
        let mut folder = Folder::new();
        let mut grids = folder.grids(self);
        grids.sort_unstable_by(|a, b| folder.compare(&a.class, &b.class));
        let mut writer = Writer {
            text: String::new(),
            budget: product::Budget::default(),
        };
        for grid in &mut grids {
            folder.fold(grid);
            let form = folder.forms.get(grid.class.form);
            let mut boxes: Vec<_> = grid
                .rows
                .iter()
                .map(|&row| folder.dimensions(row))
                .collect();
            boxes.sort_unstable();
            for dimensions in boxes {
                writer.put(form, &grid.class.widths, &dimensions);
            }
        }
        writer.text
    }
}

/// Sets of numbers, as ascending intervals that do not touch: of intervals in the order of their starts those numbers
/// that are in any of them, those that are in two, in three and so on.
fn layers(intervals: &[Interval]) -> Vec<Vec<Interval>> {
    let mut ends: Vec<u64> = intervals.iter().map(|interval| interval.hi).collect();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let mut layers: Vec<Vec<Interval>> = Vec::new();
    // Number of open intervals, which is the number of layers whose last interval has no end yet.
    let mut depth = 0;
    for &Interval { lo, .. } in intervals {
        while let Some(end) = ends.next_if(|&end| end < lo) {
            depth -= 1;
            close(&mut layers[depth], end);
        }
        if layers.len() == depth {
            layers.push(Vec::new());
        }
        let layer = &mut layers[depth];
        if layer.last().is_none_or(|last| last.hi + 1 < lo) {
            layer.push(Interval::one(lo));
        }
        depth += 1;
    }
    for end in ends {
        depth -= 1;
        close(&mut layers[depth], end);
    }
    layers
}

fn close(layer: &mut [Interval], end: u64) {
    if let Some(last) = layer.last_mut() {
        last.hi = end;
    }
}

//! Those of which the least is wasted first: the leaves themselves are in that order.

use penstock_jobspec::Constraint;

use crate::machine::book::Book;
use crate::machine::nodes::Nodes;
use crate::machine::shape::Shape;

/// What of each node a shape does not ask for: gpus, if it asks for none, and properties.
pub(in super::super) fn waste<'a>(
    nodes: &'a Nodes,
    book: &'a Book,
    shape: &'a Shape,
) -> impl Fn(u32) -> (u32, u32) + 'a {
    let mut asked = Vec::new();
    if let Some(constraint) = &shape.request.constraint {
        names(constraint, &mut asked);
    }
    let profiles = book.profiles();
    let numbers = (0..profiles.count()).zip(0_u32..);
    let unasked: Vec<u32> = numbers
        .map(|(_, number)| profiles.unasked(number, &asked))
        .collect();
    let wants_gpus = shape.gpus > 0;
    move |place| {
        let gpus = if wants_gpus {
            0
        } else {
            nodes.kind(place).gpus.len
        };
        (gpus, unasked[profiles.number(place) as usize])
    }
}

/// The properties that a constraint names, in whatever way.
fn names<'a>(constraint: &'a Constraint, found: &mut Vec<&'a str>) {
    match constraint {
        Constraint::And(parts) | Constraint::Or(parts) | Constraint::Not(parts) => {
            for part in parts {
                names(part, found);
            }
        }
        Constraint::Properties(all) => {
            let all = all.iter().filter(|name| !name.starts_with('^'));
            found.extend(all.map(String::as_str));
        }
        Constraint::Hostlist(_) | Constraint::Ranks(_) => {}
    }
}

//! Thrifty selection: the nodes of which a shape wastes the least first. The leaves of the view are
//! in that order, so the walk is that of first fit.

use penstock_jobspec::Constraint;

use crate::ids::NodeIndex;
use crate::node_table::directory::NodeDirectory;
use crate::node_table::nodes::Nodes;
use crate::node_table::shape::Shape;
use crate::node_table::view::Waste;

/// The waste of a shape on a node: gpus, if it requests none, and properties that it does not name.
pub(in super::super) fn waste<'a>(
    nodes: &'a Nodes,
    directory: &'a NodeDirectory,
    shape: &'a Shape,
) -> impl Fn(NodeIndex) -> Waste + 'a {
    let mut named = Vec::new();
    if let Some(constraint) = &shape.request.constraint {
        collect_names(constraint, &mut named);
    }
    let property_sets = directory.property_sets();
    let numbers = (0..property_sets.count()).zip(0_u32..);
    let unnamed: Vec<u32> = numbers
        .map(|(_, number)| property_sets.count_unnamed(number, &named))
        .collect();
    let wants_gpus = shape.gpus > 0;
    move |node| {
        let gpus = if wants_gpus {
            0
        } else {
            nodes.class(node).gpus.len
        };
        Waste {
            gpus,
            properties: unnamed[property_sets.number(node) as usize],
        }
    }
}

/// Collects the properties that a constraint names, other than to exclude nodes with them.
fn collect_names<'a>(constraint: &'a Constraint, found: &mut Vec<&'a str>) {
    match constraint {
        Constraint::And(parts) | Constraint::Or(parts) | Constraint::Not(parts) => {
            for part in parts {
                collect_names(part, found);
            }
        }
        Constraint::Properties(all) => {
            let all = all.iter().filter(|name| !name.starts_with('^'));
            found.extend(all.map(String::as_str));
        }
        Constraint::Hostlist(_) | Constraint::Ranks(_) => {}
    }
}

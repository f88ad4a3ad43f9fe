//! The commit of R for an outstanding request, and its undoing. No other module stores or clears R.

use penstock_flux::Allocation;
use penstock_jobspec::job_id::JobId;

use crate::context::Context;
use crate::dialogue::Alloc;

/// Stores a commit of R for an outstanding request; the claims have it already.
pub(crate) fn commit_allocation(cx: &mut Context, allocation: Allocation) {
    let Allocation { id, r, text } = allocation;
    cx.store_r(id, &text);
    if let Some(dialogue) = cx.jobs.dialogue(id) {
        let is_outstanding = dialogue.commit(r);
        debug_assert!(is_outstanding, "checked before the commit");
    }
}

/// Undoes the commit of R for a request that ends without an allocation. `request` is the request
/// before its end.
pub(super) fn undo_commit(cx: &mut Context, id: JobId, request: Alloc) {
    cx.claims.drop(id);
    if request.is_committed() {
        cx.clear_r(id);
    }
}

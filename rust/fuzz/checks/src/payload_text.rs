//! Any bytes as the payload of each message, in JSON or in CBOR.

use penstock_flux::{
    JobRequest, Payload, StreamCancelRequest, acquire, alloc, broker, document, exec, hooks,
    job_info, job_ingest, job_list, job_manager, kvs, log, pmix, pmix_exec, pmix_server, read,
    resource, sched,
};
use penstock_wire::{cbor_to_json, find_text_fault, is_cbor, json_to_cbor};
use serde::Deserialize;

/// Has the text checked as each of these payloads.
macro_rules! check_as_each {
    ($json:expr, $through_cbor:expr; $($payload:ty),+ $(,)?) => {
        $(
            if let Some(bytes) = written::<$payload>($json) {
                let again = written::<$payload>(&bytes);
                assert_eq!(again.as_ref(), Some(&bytes), stringify!($payload));
                if let Some(json) = $through_cbor {
                    let found = written::<$payload>(json);
                    assert!(found.is_some(), "{}, from CBOR", stringify!($payload));
                }
            }
        )+
    };
}

fn written<'a, T: Deserialize<'a> + Payload>(payload: &'a [u8]) -> Option<Vec<u8>> {
    let value: T = match read(Some(payload)) {
        Ok(value) => value,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    let mut bytes = value.to_payload();
    assert_eq!(bytes.pop(), Some(0));
    Some(bytes)
}

/// Reads the bytes as the payload of each message; one that is valid is read again as it is written, and from CBOR.
///
/// # Panics
///
/// Panics if what is written cannot be read, or differs.
pub fn check(data: &[u8]) {
    let json = if is_cbor(data) {
        cbor_to_json(data).ok().map(String::into_bytes)
    } else {
        Some(data.to_vec())
    };
    let Some(json) = json.filter(|json| find_text_fault(json).is_none()) else {
        return;
    };
    let through_cbor = std::str::from_utf8(&json)
        .ok()
        .and_then(|text| json_to_cbor(text).ok())
        .map(|cbor| cbor_to_json(&cbor).expect("CBOR that came from JSON"));
    check_as_each!(
        &json, through_cbor.as_deref().map(str::as_bytes);
        JobRequest,
        StreamCancelRequest,
        acquire::AcquireRequest,
        acquire::InventoryResponse,
        alloc::AllocRequest,
        alloc::CancelRequest,
        alloc::ExpirationRequest,
        alloc::FeasibilityRequest,
        alloc::FreeRequest,
        alloc::HelloRequest,
        alloc::PrioritizeRequest,
        alloc::ReadyRequest,
        alloc::ReadyResponse,
        broker::AttributeSetRequest,
        broker::ConfigReloadRequest,
        broker::NameRequest,
        broker::PublishRequest,
        broker::ServiceRequest,
        broker::ShutdownRequest,
        broker::SubscriptionRequest,
        exec::ConfigReloadRequest,
        exec::HelloRequest,
        exec::InputRequest,
        exec::KillRequest,
        exec::OutputRequest,
        exec::ReplacedRequest,
        exec::ResizeRequest,
        exec::ShrinkRequest,
        exec::SignalRequest,
        exec::StartRequest,
        hooks::CancelRequest,
        hooks::HookRequest,
        hooks::HookResponse,
        job_info::EventlogWatchRequest,
        job_info::LookupRequest,
        job_ingest::SubmitPartRequest,
        job_ingest::SubmitRequest,
        job_list::ListIdRequest,
        job_list::ListRequest,
        job_list::WaitRequest,
        job_manager::HistoryRequest,
        job_manager::JobsRequest,
        job_manager::JournalRequest,
        job_manager::KillRequest,
        job_manager::MatchingJobsRequest,
        job_manager::MemoRequest,
        job_manager::PrioritizeRequest,
        job_manager::PurgeIdRequest,
        job_manager::PurgeRequest,
        job_manager::QueueEnableRequest,
        job_manager::QueueRequest,
        job_manager::QueueStartRequest,
        job_manager::RaiseRequest,
        job_manager::UpdateRequest,
        job_manager::UrgencyRequest,
        job_manager::WaitRequest,
        kvs::CommitRequest,
        kvs::LookupRequest,
        kvs::NamespaceRequest,
        log::AppendRequest,
        log::ClearRequest,
        log::DmesgRequest,
        pmix::AllocRequest,
        pmix::CancelRequest,
        pmix::JobRequest,
        pmix_exec::EndedRequest,
        pmix_exec::StartRequest,
        pmix_exec::StopRequest,
        pmix_server::AllocRequest,
        pmix_server::EndedRequest,
        pmix_server::QueryRequest,
        pmix_server::StartRequest,
        resource::DrainRequest,
        resource::ExpirationRequest,
        resource::GrowRequest,
        resource::HistoryRequest,
        resource::MonitorRequest,
        resource::PropertyRequest,
        resource::ReloadRequest,
        resource::TargetsRequest,
        sched::JobsRequest,
        sched::WhatIfRequest,
    );
    let _ = document(Some(&json), "id");
}

//! Every structure: written and read again; arrays, missing keys and wrong types are rejected by name.

use std::fmt::Debug;

use penstock_flux::alloc::{AllocResponse, AllocResponseType, Annotations};
use penstock_flux::{
    AnyRequest, EmptyResponse, JobId, JobRequest, Json, Member, Payload, StreamCancelRequest, Text,
    acquire, alloc, broker, document, exec, guest_log, hooks, job_info, job_ingest, job_list,
    job_manager, kvs, log, pmix, pmix_exec, pmix_server, read, resource, sched,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Reads `text`, which has every key of `T`, and checks that `T` writes the same keys and values.
fn round_trip<'a, T: Deserialize<'a> + Payload + Debug + PartialEq>(text: &'a str) {
    let name = std::any::type_name::<T>();
    let value: T = read(Some(text.as_bytes())).unwrap_or_else(|error| panic!("{name}: {error}"));
    let bytes = value.to_payload();
    let json = bytes.strip_suffix(&[0]).unwrap();
    let written: Value = serde_json::from_slice(json).unwrap();
    let given: Value = serde_json::from_str(text).unwrap();
    assert_eq!(written, given, "{name}");
    // Hand-written serialization equals serde's.
    assert_eq!(serde_json::to_vec(&value).unwrap(), json, "{name}");
    // A later version may bring other keys.
    let mut later: Map<String, Value> = serde_json::from_str(text).unwrap();
    if !is_open(name) {
        later.insert("key-of-a-later-version".to_owned(), json!([1]));
        let later = Box::leak(Value::Object(later).to_string().into_boxed_str());
        assert_eq!(
            read::<T>(Some(later.as_bytes())).as_ref(),
            Ok(&value),
            "{name}"
        );
    }
    let listed = Box::leak(format!("[{text}]").into_boxed_str());
    let error = read::<T>(Some(listed.as_bytes())).unwrap_err();
    assert!(error.is_wrong_value(), "{name}");
    assert_eq!(
        error.to_string(),
        "expected an object, found an array",
        "{name}"
    );
    for listed in with_an_object_as_array(&written) {
        let listed = Box::leak(listed.to_string().into_boxed_str());
        let found = read::<T>(Some(listed.as_bytes()));
        assert_ne!(found.as_ref(), Ok(&value), "{name}: {listed}");
    }
}

/// Checks the keys and values of a payload that is only written.
fn written<T: Payload>(value: &T, text: &str) {
    let bytes = value.to_payload();
    let json: Value = serde_json::from_slice(bytes.strip_suffix(&[0]).unwrap()).unwrap();
    assert_eq!(json, serde_json::from_str::<Value>(text).unwrap());
}

/// Returns a copy of `value` for each object within it, with the array of that object's values in its place. Derived
/// implementations of [`Deserialize`] accept such an array as the object.
fn with_an_object_as_array(value: &Value) -> Vec<Value> {
    fn pointers(value: &Value, pointer: &str, found: &mut Vec<String>) {
        if value.is_object() {
            found.push(pointer.to_owned());
        }
        let members = value.as_object().into_iter().flatten();
        for (key, member) in members {
            let key = key.replace('~', "~0").replace('/', "~1");
            pointers(member, &format!("{pointer}/{key}"), found);
        }
        for (index, element) in value.as_array().into_iter().flatten().enumerate() {
            pointers(element, &format!("{pointer}/{index}"), found);
        }
    }

    let mut found = Vec::new();
    pointers(value, "", &mut found);
    let listed = found.iter().map(|pointer| {
        let mut listed = value.clone();
        let object = listed.pointer_mut(pointer).unwrap();
        *object = object.as_object().unwrap().values().cloned().collect();
        listed
    });
    listed.collect()
}

/// Whether a structure takes any key, as the name of something.
fn is_open(name: &str) -> bool {
    name.ends_with("job_info::LookupResponse")
}

#[test]
fn rfc_27_payloads_round_trip() {
    round_trip::<alloc::HelloRequest>(r#"{"partial-ok":true}"#);
    round_trip::<alloc::HelloResponse>(
        r#"{"id":1,"priority":16,"userid":5,"t_submit":1.5,"free":"0-3"}"#,
    );
    round_trip::<alloc::ReadyRequest>(r#"{"mode":"limited","limit":2}"#);
    round_trip::<alloc::ReadyRequest>(r#"{"mode":"unlimited"}"#);
    round_trip::<alloc::ReadyResponse>(r#"{"count":4}"#);
    round_trip::<alloc::AllocRequest>(
        r#"{"id":1,"priority":4294967295,"userid":5,"t_submit":0.25,"jobspec":{"version":1,"x":[{}]}}"#,
    );
    round_trip::<alloc::AllocRequest>(r#"{"id":1,"priority":0,"jobspec":{}}"#);
    round_trip::<AllocResponse>(
        r#"{"id":1,"type":0,"R":{"version":1},"annotations":{"sched":{"resource_summary":"rank0"}}}"#,
    );
    round_trip::<AllocResponse>(r#"{"id":1,"type":2,"note":"a \"quoted\" note"}"#);
    round_trip::<AllocResponse<Annotations>>(
        r#"{"id":1,"type":1,"annotations":{"sched":{"reason_pending":null,"t_estimate":2.5}}}"#,
    );
    round_trip::<AllocResponse>(r#"{"id":1,"type":3}"#);
    round_trip::<alloc::CancelRequest>(r#"{"id":1}"#);
    round_trip::<alloc::PrioritizeRequest>(r#"{"jobs":[[1,16],[2,0]]}"#);
    round_trip::<alloc::FreeRequest>(r#"{"id":1,"R":{"version":1},"final":true}"#);
    round_trip::<alloc::FreeResponse>(r#"{"id":1}"#);
    round_trip::<alloc::ExpirationRequest>(r#"{"id":1,"expiration":17.5}"#);
    round_trip::<alloc::FeasibilityRequest>(r#"{"jobspec":{"version":1}}"#);
}

#[test]
fn rfc_28_payloads_round_trip() {
    round_trip::<acquire::AcquireRequest>(r#"{"grow-ok":true}"#);
    round_trip::<acquire::InventoryResponse>(r#"{"resources":{"version":1},"up":"0-3"}"#);
    round_trip::<acquire::ChangeResponse<Json>>(
        r#"{"grow":{"version":1},"shrink":"4","up":"1","down":"2-3","property-add":{"a":"0"},
            "property-remove":{"b":"1"},"expiration":0.0}"#,
    );
    round_trip::<acquire::ChangeResponse<Json>>("{}");
}

#[test]
fn rfc_32_payloads_round_trip() {
    round_trip::<exec::HelloRequest>(r#"{"service":"job-exec"}"#);
    round_trip::<exec::StatsResponse>(
        r#"{"jobs":3,"tasks":4,"followers":0,"unclaimed":1,"held_starts":0}"#,
    );
    round_trip::<exec::SimulatedStatsResponse>(r#"{"running":3}"#);
    round_trip::<exec::StartRequest>(
        r#"{"id":1,"userid":5,"jobspec":{"version":1},"reattach":true,"R":{"version":1}}"#,
    );
    round_trip::<exec::StartRequest>(r#"{"id":1,"userid":5,"jobspec":{},"reattach":false}"#);
    round_trip::<exec::StartRequest>(
        r#"{"id":1,"userid":5,"jobspec":{},"reattach":true,"R":{},"journal":"a\"1"}"#,
    );
    round_trip::<exec::HelloRequest>(
        r#"{"service":"job-exec","journal":"a1","releases-shrunk":true}"#,
    );
    for kind in exec::StartResponseType::ALL {
        let text = format!(r#"{{"id":1,"type":"{kind}","data":{{}}}}"#);
        round_trip::<exec::StartResponse<Json>>(Box::leak(text.into_boxed_str()));
    }
    round_trip::<exec::NoData>("{}");
    round_trip::<exec::Release>(r#"{"ranks":"all","final":true}"#);
    round_trip::<exec::Release>(r#"{"ranks":"1-2","final":false}"#);
    round_trip::<exec::Exception>(r#"{"severity":0,"type":"exec","note":"n","wait_status":9}"#);
    round_trip::<exec::InputRequest>(r#"{"id":1,"writer":7,"offset":3,"data":"aGk=","end":true}"#);
    round_trip::<exec::ResizeRequest>(r#"{"id":1,"rows":24,"columns":80}"#);
    round_trip::<exec::Finish>(r#"{"status":256}"#);
    round_trip::<exec::Finish>(
        r#"{"status":0,"usage":{"max_rss_kib":512,"user_us":7,"system_us":8}}"#,
    );
    let other = br#"{"status":1,"usage":{"max_rss_kib":"512"},"other":[]}"#;
    let finish: exec::Finish = read(Some(other)).expect("further keys are the service's");
    assert_eq!(finish, exec::Finish::new(1));
    round_trip::<exec::KillRequest>(r#"{"id":1,"signum":15}"#);
    round_trip::<exec::ShrinkRequest>(r#"{"id":1,"ranks":"2-3"}"#);
    round_trip::<exec::OutputRequest>(r#"{"id":1,"streams":["stdout"],"follow":true}"#);
    round_trip::<exec::InputRequest>(r#"{"id":1,"writer":2,"offset":0,"end":true,"task":3}"#);
    round_trip::<exec::SignalRequest>(r#"{"id":1,"task":3,"signum":15}"#);
    round_trip::<exec::OutputResponse>(r#"{"stream":"stdout","data":"aGkK"}"#);
    round_trip::<exec::ReplacedRequest>(r#"{"service":"other"}"#);
    round_trip::<exec::ConfigReloadRequest>(
        r#"{"kill-timeout":1.5,"output-limit":1000,"output-reserve":1,"user-output-limit":2}"#,
    );
    round_trip::<exec::ConfigReloadRequest>("{}");
    round_trip::<exec::JobExceptionEvent>(
        r#"{"id":1,"type":"cancel","severity":0,"wait_status":-1}"#,
    );
}

#[test]
fn payloads_of_the_job_services_round_trip() {
    round_trip::<StreamCancelRequest>(r#"{"matchtag":7}"#);
    round_trip::<job_ingest::SubmitRequest>(
        r#"{"jobspec":{"version":1},"J":"a.b.none","urgency":20,"flags":1,"count":3,
            "cc":"1-3","token":"t","jobs":[{"jobspec":{}},{"J":"x"}]}"#,
    );
    round_trip::<job_ingest::SubmitPartRequest>(
        r#"{"token":"t","part":1,"more":true,"jobs":[{"jobspec":{}},{}]}"#,
    );
    round_trip::<job_ingest::SubmitPartResponse>(r#"{"results":[1,[2,3],"no"]}"#);
    round_trip::<job_ingest::SubmitResponse>(r#"{"id":1}"#);
    round_trip::<job_ingest::SubmitCopiesResponse>(r#"{"ids":[1,2]}"#);
    round_trip::<job_ingest::SubmitManyResponse>(r#"{"results":[{"ids":[1]},{"error":"no"}]}"#);
    round_trip::<job_manager::JobsRequest>(r#"{"id":1,"ids":[2],"all":true,"userid":5}"#);
    round_trip::<job_manager::BulkResponse>(r#"{"count":1,"errors":{"2":"no job ƒ3"}}"#);
    round_trip::<job_manager::KillRequest>(r#"{"signum":9}"#);
    round_trip::<job_manager::UrgencyRequest>(r#"{"urgency":31}"#);
    round_trip::<job_manager::IdleResponse>(r#"{"pending":2}"#);
    round_trip::<job_manager::UrgencyResponse>(r#"{"old_urgency":16}"#);
    round_trip::<job_manager::PrioritizeRequest>(r#"{"jobs":[[1,-1]]}"#);
    round_trip::<job_manager::MemoRequest>(r#"{"id":1,"memo":{"a":null,"b":{"c":1}}}"#);
    round_trip::<job_manager::UpdateRequest>(
        r#"{"id":1,"updates":{"attributes.system.duration":60}}"#,
    );
    round_trip::<job_manager::PurgeIdRequest>(r#"{"id":5,"force":1}"#);
    round_trip::<job_manager::PurgeRequest>(
        r#"{"age_limit":1.5,"num_limit":-1,"ids":[1],"force":true}"#,
    );
    round_trip::<job_manager::PurgeResponse>(r#"{"count":1,"inactives":2}"#);
    round_trip::<job_manager::QueueListResponse>(r#"{"queues":["batch"]}"#);
    round_trip::<job_manager::QueueRequest>(r#"{"name":"batch"}"#);
    round_trip::<job_manager::QueueStatusResponse>(
        r#"{"enable":false,"start":true,"disable_reason":"a","stop_reason":"b"}"#,
    );
    round_trip::<job_manager::QueueEnableRequest>(
        r#"{"name":"batch","enable":false,"reason":"r","all":true}"#,
    );
    round_trip::<job_manager::QueueStartRequest>(
        r#"{"name":"batch","start":false,"reason":"r","all":true,"nocheckpoint":true}"#,
    );
    round_trip::<job_manager::HistoryRequest>(r#"{"slice":"[:1]","userid":5}"#);
    round_trip::<job_manager::AllocQueryResponse>(
        r#"{"queue_length":3,"alloc_pending":2,"running":1}"#,
    );
    round_trip::<job_manager::HistoryResponse>(r#"{"jobs":[2,1]}"#);
    round_trip::<job_manager::WaitRequest>(r#"{"id":-1}"#);
    round_trip::<job_manager::WaitResponse>(r#"{"id":1,"success":false,"errstr":"a"}"#);
    round_trip::<job_manager::JournalRequest>(r#"{"full":true,"allow":{"start":1}}"#);
    round_trip::<job_manager::JournalResponse>(
        r#"{"id":1,"events":[{"name":"alloc"}],"jobspec":{},"R":{"version":1}}"#,
    );
    round_trip::<job_manager::RaiseRequest>(
        r#"{"type":"cancel","severity":1,"note":"n","wait_status":9}"#,
    );
    round_trip::<job_manager::MatchingJobsRequest>(r#"{"dry_run":true,"userid":-1,"states":16}"#);
    round_trip::<job_manager::MatchingJobsResponse>(r#"{"count":3,"errors":1}"#);
    round_trip::<job_manager::StatsResponse>(
        r#"{"active_jobs":3,"inactive_jobs":1,"pending":2,"running":1,"max_jobid":9,"commits":4,
            "sched":{"state":"ready","queued":1,"requested":1},
            "exec":{"service":null,"queued":0},
            "outstanding":{"followers":1,"waits":2,"awaited":3,"drains":4},
            "rejected":{"submission_jobs":5,"active_jobs":6,"all_active_jobs":12,"memo_bytes":1,"all_memo_bytes":2,"job_bytes":7,"all_job_bytes":13,
                "jobspec_bytes":3,"text_bytes":4,"eventlog_bytes":6,"unfinished_submissions":5,"lookup_bytes":0,
                "store_bytes":8,"reserved_bytes":9},
            "states":{"depend":1,"priority":2,"sched":3,"run":4,"cleanup":5,"inactive":6},
            "queues":{"batch":{"pending":1,"running":2}},"submitted":7,
            "ended":{"completed":1,"failed":2,"canceled":3,"timeout":4},"purged":8,
            "stages":{"pending":{"count":1,"sum":1.5,"le":[1.0],"buckets":[0]},
                "start":{"count":0,"sum":0.0,"le":[],"buckets":[]},
                "run":{"count":0,"sum":0.0,"le":[],"buckets":[]},
                "cleanup":{"count":0,"sum":0.0,"le":[],"buckets":[]}},
            "submissions":{"count":0,"sum":0.0,"le":[],"buckets":[]},
            "checkpoints":{"count":0,"sum":0.0,"le":[],"buckets":[]},"store_log_bytes":4120,
            "store_bytes":4096,"store_free_bytes":0,"store_released_bytes":8192,"housekeeping":{"running":{}}}"#,
    );
    round_trip::<job_list::ListRequest>(
        r#"{"max_entries":5,"attrs":["name"],"since":1.5,"constraint":{"and":[]},"ids":[1]}"#,
    );
    round_trip::<job_list::ListRequest>(
        r#"{"max_entries":5,"attrs":[],"since":0.0,"order":"state","skip":10}"#,
    );
    round_trip::<job_list::ListResponse>(r#"{"jobs":[{"id":1}],"version":1}"#);
    round_trip::<job_list::ListIdRequest>(r#"{"id":1,"attrs":["name"]}"#);
    round_trip::<job_list::UsageRequest>(
        r#"{"by":["user","project"],"times":[0.0,1.5],"userid":5,"queues":["batch"]}"#,
    );
    let sum = r#""span":0,"jobs":2,"node_seconds":1.5,"core_seconds":3.0,"gpu_seconds":0.0"#;
    round_trip::<job_list::UsageResponse>(&format!(
        r#"{{"sums":[{{"userid":5,"bank":"a",{sum}}}]}}"#
    ));
    round_trip::<job_list::ListIdResponse>(r#"{"job":{"id":1}}"#);
    round_trip::<job_list::UserResponse>(r#"{"job":{"userid":1000}}"#);
    round_trip::<job_list::ListAttrsResponse>(r#"{"attrs":["id","name"]}"#);
    round_trip::<job_list::WaitRequest>(r#"{"ids":[1,2]}"#);
    let counts = r#""job_states":{"run":1,"total":1},"successful":0,"failed":0,"canceled":0,"timeout":0,"inactive_purged":0"#;
    let stats = format!(r#"{{{counts},"queues":[{{{counts},"name":"batch"}}]}}"#);
    round_trip::<job_list::JobStatsResponse>(Box::leak(stats.into_boxed_str()));
    round_trip::<job_info::LookupRequest>(r#"{"id":1,"keys":["R"],"flags":0}"#);
    round_trip::<job_info::LookupResponse>(r#"{"id":1,"R":"{}","eventlog":"a\nb\n"}"#);
    round_trip::<job_info::EventlogWatchRequest>(r#"{"id":1,"path":"eventlog","flags":0}"#);
    round_trip::<job_info::EventlogWatchResponse>(r#"{"event":"{\"name\":\"submit\"}\n"}"#);
}

#[test]
fn results_of_submissions_are_written_as_their_jobs_are_added() {
    let mut text = job_ingest::SubmitResultsText::default();
    let no_results = job_ingest::SubmitManyResponse {
        results: Vec::new(),
    };
    assert_eq!(text.many_payload(), no_results.to_payload());

    let ids = vec![JobId::new(1), JobId::new(u64::MAX)];
    text.begin_ids();
    for id in &ids {
        text.push_id(*id);
    }
    text.end_ids();
    let copies = job_ingest::SubmitCopiesResponse { ids: ids.clone() };
    assert_eq!(text.clone().take_copies_payload(), copies.to_payload());

    let reason = "no queue \"a\"";
    text.push_error(reason);
    text.begin_ids();
    text.push_id(JobId::new(3));
    text.end_ids();
    let many = job_ingest::SubmitManyResponse {
        results: vec![
            job_ingest::SubmitResult::Ids(ids),
            job_ingest::SubmitResult::Error(reason.to_owned()),
            job_ingest::SubmitResult::Ids(vec![JobId::new(3)]),
        ],
    };
    assert_eq!(text.many_payload(), many.to_payload());

    let mut text = job_ingest::SubmitResultsText::of_part();
    let next = job_ingest::SubmitPartResult::Id(JobId::new(9));
    for results in [
        vec![
            job_ingest::SubmitPartResult::Id(JobId::new(1)),
            job_ingest::SubmitPartResult::Id(JobId::new(2)),
            job_ingest::SubmitPartResult::Ids(vec![JobId::new(3), JobId::new(4)]),
            job_ingest::SubmitPartResult::Error(reason.to_owned()),
            job_ingest::SubmitPartResult::Id(JobId::new(5)),
        ],
        vec![next],
    ] {
        for result in &results {
            match result {
                job_ingest::SubmitPartResult::Id(id) => {
                    text.begin_id();
                    text.push_id(*id);
                    text.end_id();
                }
                job_ingest::SubmitPartResult::Ids(ids) => {
                    text.begin_ids();
                    for id in ids {
                        text.push_id(*id);
                    }
                    text.end_ids();
                }
                job_ingest::SubmitPartResult::Error(reason) => text.push_error(reason),
            }
        }
        let response = job_ingest::SubmitPartResponse { results };
        assert_eq!(text.take_part_payload(), response.to_payload());
    }
}

#[test]
fn payloads_of_the_kvs_are_written() {
    let no_blob = kvs::NO_BLOB;
    let entries = [
        (
            "a".to_owned(),
            kvs::TreeObject::Reference(kvs::Reference::DIRECTORY),
        ),
        (
            "b".to_owned(),
            kvs::TreeObject::Reference(kvs::Reference::VALUE),
        ),
        (
            "c".to_owned(),
            kvs::TreeObject::Symlink(kvs::Symlink::new("a".to_owned())),
        ),
    ];
    let val = kvs::Directory::new(entries.into());
    written::<kvs::DirectoryResponse>(
        &kvs::DirectoryResponse { val },
        &format!(
            r#"{{"val":{{"ver":1,"type":"dir","data":{{
                "a":{{"ver":1,"type":"dirref","data":["{no_blob}"]}},
                "b":{{"ver":1,"type":"valref","data":["{no_blob}"]}},
                "c":{{"ver":1,"type":"symlink","data":{{"target":"a"}}}}}}}}}}"#
        ),
    );
    let val = kvs::TreeObject::Reference(kvs::Reference::DIRECTORY);
    written::<kvs::ObjectResponse>(
        &kvs::ObjectResponse { val },
        &format!(r#"{{"val":{{"ver":1,"type":"dirref","data":["{no_blob}"]}}}}"#),
    );
    let root = kvs::RootResponse {
        rootref: no_blob,
        rootseq: 3,
        owner: 5,
        flags: 0,
    };
    written::<kvs::RootResponse>(
        &root,
        &format!(r#"{{"rootref":"{no_blob}","rootseq":3,"owner":5,"flags":0}}"#),
    );
    let namespaces = [kvs::Namespace {
        namespace: "primary",
        owner: 5,
        flags: 0,
    }];
    written::<kvs::NamespaceListResponse>(
        &kvs::NamespaceListResponse { namespaces },
        r#"{"namespaces":[{"namespace":"primary","owner":5,"flags":0}]}"#,
    );
    round_trip::<kvs::NamespaceRequest>(r#"{"namespace":"primary"}"#);
}

#[test]
fn payloads_of_standard_streams_round_trip() {
    round_trip::<guest_log::Data>(
        r#"{"stream":"stdout","rank":"0-1","encoding":"base64","data":"aGk=","eof":true}"#,
    );
}

#[test]
fn a_wait_status_is_shown_as_by_a_shell() {
    let statuses = [0, 3 << 8, 255 << 8, 15, 9 | 0x80];
    assert_eq!(statuses.map(exec::exit_status), [0, 3, 255, 143, 137]);
}

#[test]
fn payloads_of_the_log_round_trip() {
    round_trip::<log::DmesgRequest>(r#"{"follow":true,"nobacklog":false,"rows":true}"#);
    round_trip::<log::AppendRequest>(r#"{"level":"info","text":"ready"}"#);
    round_trip::<log::ClearRequest>(r#"{"upto":3}"#);
    assert_eq!(
        read::<log::ClearRequest>(None),
        Ok(log::ClearRequest { upto: None })
    );
}

#[test]
fn a_document_that_must_be_an_object_is_rejected_by_its_type() {
    for (text, found) in [
        (r#"{"config":[{}]}"#, "an array"),
        (r#"{"config":"{}"}"#, "a string"),
        (r#"{"config":null}"#, "null"),
        (r#"{"config":true}"#, "a boolean"),
        (r#"{"config":-1}"#, "a number"),
    ] {
        let expected = format!("`config`: expected an object, found {found}");
        assert_eq!(error::<broker::ConfigReloadRequest>(text), expected);
    }
    assert_eq!(
        error::<broker::ConfigReloadRequest>("{}"),
        "missing key `config`"
    );
}

#[test]
fn payloads_of_broker_store_and_resources_round_trip() {
    round_trip::<AnyRequest>("{}");
    round_trip::<EmptyResponse>("{}");
    round_trip::<JobRequest>(r#"{"id":1}"#);
    round_trip::<broker::PublishRequest>(r#"{"topic":"a","flags":1,"payload":"e30="}"#);
    round_trip::<broker::AttributeSetRequest>(r#"{"name":"a","value":"b"}"#);
    round_trip::<broker::ServiceRequest>(r#"{"service":"sched"}"#);
    round_trip::<broker::SubscriptionRequest>(r#"{"topic":"job-"}"#);
    round_trip::<broker::NameRequest>(r#"{"name":"size"}"#);
    round_trip::<broker::AttributeResponse>(r#"{"value":"4","flags":1}"#);
    round_trip::<broker::GroupResponse>(r#"{"members":"0-3"}"#);
    round_trip::<broker::ConfigReloadRequest>(r#"{"config":{"queues":{}}}"#);
    round_trip::<broker::ShutdownRequest>(r#"{"keep_running":true,"restart":false}"#);
    assert_eq!(
        penstock_flux::read::<broker::ShutdownRequest>(None).unwrap(),
        broker::ShutdownRequest::default()
    );
    round_trip::<broker::StateResponse>(r#"{"state":"run","duration":1.5}"#);
    round_trip::<kvs::CommitRequest>(
        r#"{"namespace":"primary","flags":0,"ops":[
            {"key":"a","flags":0,"dirent":{"ver":1,"type":"val","data":"e30="}},
            {"key":"b","flags":0,"dirent":null},
            {"key":"c","flags":0,"dirent":{"ver":1,"type":"dir","data":{}}},
            {"key":"d","flags":0,"dirent":{"ver":1,"type":"symlink","data":{"target":"a"}}}]}"#,
    );
    round_trip::<kvs::CommitResponse>(r#"{"rootseq":6}"#);
    round_trip::<kvs::LookupRequest>(r#"{"namespace":"primary","key":"a","flags":0}"#);
    round_trip::<kvs::LookupResponse>(r#"{"val":{"ver":1,"type":"val","data":"e30="}}"#);
    round_trip::<resource::DrainRequest>(r#"{"targets":"0","reason":"bad","mode":"update"}"#);
    round_trip::<resource::TargetsRequest>(r#"{"targets":"0-3"}"#);
    round_trip::<resource::GrowRequest>(r#"{"R":{"version":1}}"#);
    round_trip::<resource::ReloadRequest>(r#"{"path":"/etc/R","xml":false,"force":true}"#);
    round_trip::<resource::PropertyRequest>(r#"{"targets":"0-3","name":"gpu"}"#);
    round_trip::<resource::ExpirationRequest>(r#"{"expiration":0.0}"#);
    round_trip::<resource::MonitorRequest>(r#"{"ranks":"0-3"}"#);
    round_trip::<resource::MonitorResponse>(r#"{"ranks":"0-3"}"#);
    round_trip::<resource::StatsResponse>(
        r#"{"ranks":"0-3","up":"0","drained":1,"acquired":true,"monitors":1,"events":5}"#,
    );
    round_trip::<resource::HistoryRequest>(r#"{"targets":"node[0-3]"}"#);
    round_trip::<resource::HistoryResponse>(r#"{"events":[{"name":"drain"}]}"#);
    round_trip::<resource::JournalResponse>(r#"{"events":[{"name":"drain"}],"R":{"version":1}}"#);
    round_trip::<resource::StatusResponse>(
        r#"{"R":{"version":1},"drain":{"1":{"timestamp":1.5,"reason":"bad"}},"online":"0-1",
            "offline":"","exclude":"","torpid":""}"#,
    );
    round_trip::<resource::SchedStatusResponse>(r#"{"all":{},"down":{},"allocated":{}}"#);
    round_trip::<hooks::HookRequest>(r#"{"id":1,"userid":5,"status":256,"R":{"version":1}}"#);
    round_trip::<hooks::HookRequest>(r#"{"id":1,"userid":5,"status":null,"R":null}"#);
    round_trip::<hooks::HookResponse>(r#"{"id":1,"status":0,"note":""}"#);
    round_trip::<hooks::CancelRequest>(r#"{"id":1}"#);
}

#[test]
fn sched_and_pmix_payloads_round_trip() {
    round_trip::<sched::JobsRequest>(r#"{"ids":[1],"id":2,"max_entries":3}"#);
    round_trip::<sched::ExplainResponse>(
        r#"{"jobs":[{"id":1,"kind":"limit","reason":"r","details":{"count":3},"start":1.5,
            "earliest":1.0,"latest":2.0}],"errors":{"2":"unknown"}}"#,
    );
    let accuracy = r#"{"count":2,"mean":1.0,"low":0.0,"median":0.5,"high":2.0}"#;
    let estimates = format!(
        r#"{{"jobs":[{{"id":1,"start":1.5}},{{"id":2,"reason":"held","start":null}}],"accuracy":{accuracy},"errors":{{}}}}"#
    );
    round_trip::<sched::EstimateResponse>(Box::leak(estimates.into_boxed_str()));
    round_trip::<sched::WhatIfRequest>(
        r#"{"submit":{"version":1},"urgency":16,"cancel":1,"down":"0","up":"1","fit":2,"job":3,
            "nodes":4,"duration":60.0}"#,
    );
    round_trip::<sched::WhatIfResponse>(
        r#"{"text":"t","start":1.5,"ranks":"0-1","moved":[{"id":1,"before":1.0,"after":null}]}"#,
    );
    round_trip::<sched::WhatIfResponse>(r#"{"text":"t","start":null,"moved":[]}"#);
    round_trip::<sched::WhatIfResponse>(r#"{"text":"t","moved":[]}"#);
    round_trip::<sched::FitResponse>(r#"{"text":"t","requested":4,"largest":null,"moved":[]}"#);
    let stats = format!(
        r#"{{"ready":true,"queued":1,"running":2,"unanswered":1,"policy":"easy","selection":"first","estimates":{accuracy},
            "passes":{{"count":1,"sum":0.5,"le":[1.0],"buckets":[1]}}}}"#
    );
    round_trip::<sched::StatsResponse>(Box::leak(stats.into_boxed_str()));
    round_trip::<pmix::AnyRequest>(r#"{"job":1}"#);
    round_trip::<pmix::AllocRequest>(
        r#"{"job":1,"rank":0,"host":"n0","directive":"extend","attributes":[{"key":"a"}]}"#,
    );
    round_trip::<pmix::FinalResponse>(
        r#"{"status":0,"reason":"","results":[{"key":"a"}],"cancelled":["x"]}"#,
    );
    round_trip::<pmix::QueuedResponse>(r#"{"status":0,"queued":true,"id":"x","alloc":null}"#);
    round_trip::<pmix::CancelRequest>(r#"{"job":1,"rank":0,"id":"x"}"#);
    round_trip::<pmix::JobRequest>(r#"{"job":1,"id":"x"}"#);
    round_trip::<pmix::QueryResponse>(
        r#"{"status":0,"reason":"","requests":[{"id":"x","alloc":null,"directive":"new","rank":0,
            "status":0,"state":"granted","reason":"","nodes":1,"cores":2,"time":3,"estimate":null,
            "results":[]}],"lent":[{"id":"y","nodes":1,"hosts":"n0","cpus":2,"returning":0,
            "until":1.5,"reason":""}]}"#,
    );
    round_trip::<pmix::EventResponse>(
        r#"{"id":"x","alloc":"f1","directive":"new","status":0,"reason":"","results":[]}"#,
    );
    round_trip::<pmix::AbortRequest>(r#"{"rank":0,"status":1,"message":"m"}"#);
}

#[test]
fn pmix_exec_payloads_round_trip() {
    round_trip::<pmix_exec::StartRequest>(
        r#"{"id":1,"directory":"/run/x","tasks":[{"rank":0,"target":3,"host":"n3"}]}"#,
    );
    round_trip::<pmix_exec::StartResponse>(r#"{"environment":{"0":{"PMIX_RANK":"0"}}}"#);
    round_trip::<pmix_exec::EndedRequest>(r#"{"id":1,"rank":2}"#);
    round_trip::<pmix_exec::StopRequest>(r#"{"id":1}"#);
}

#[test]
fn messages_to_and_from_a_pmix_server() {
    round_trip::<pmix_server::StartRequest>(
        r#"{"namespace":"penstock-1","job":"f1","size":2,"universe":2,"local":[0,1],
            "nodes":["n0"],"ranks_per_node":[[0,1]]}"#,
    );
    round_trip::<pmix_server::StartResponse>(r#"{"environment":{"0":{"PMIX_RANK":"0"},"1":{}}}"#);
    round_trip::<pmix_server::EndedRequest>(r#"{"rank":1}"#);
    round_trip::<pmix_server::StatsResponse>(r#"{"parked":1,"answered":2,"lent":3,"back":3}"#);
    round_trip::<pmix_server::AllocRequest>(
        r#"{"rank":null,"directive":1,"attributes":[{"key":"a"}]}"#,
    );
    round_trip::<pmix_server::QueryRequest>(r#"{"id":"x"}"#);
    round_trip::<pmix_server::QueryRequest>("{}");
}

fn error<'a, T: Deserialize<'a> + Debug>(text: &'a str) -> String {
    read::<T>(Some(text.as_bytes())).unwrap_err().to_string()
}

#[test]
fn an_error_repeats_text_with_nul_as_it_is() {
    for text in ["a\0b", "a\x005"] {
        let request = json!({"order": text}).to_string();
        let error = error::<job_list::ListRequest>(&request);
        assert!(error.ends_with(&format!("found `{text}`")), "{error:?}");
    }
}

#[test]
fn a_missing_key_is_named() {
    assert_eq!(error::<alloc::CancelRequest>("{}"), "missing key `id`");
    assert_eq!(
        error::<alloc::AllocRequest>(r#"{"id":1,"priority":2}"#),
        "missing key `jobspec`"
    );
    assert_eq!(
        error::<kvs::CommitRequest>(
            r#"{"ops":[{"key":"a"},{"key":"b","dirent":{"ver":1,"type":"val"}}]}"#
        ),
        "`ops[1].dirent`: missing key `data`"
    );
    let missing = read::<alloc::CancelRequest>(None).unwrap_err();
    assert!(missing.is_missing_key() && missing.path().is_empty());
}

#[test]
fn a_value_of_the_wrong_type_is_named_with_what_was_expected() {
    let cases = [
        (
            error::<alloc::CancelRequest>(r#"{"id":"x"}"#),
            r#"`id`: expected a non-negative integer, found string "x""#,
        ),
        (
            error::<alloc::CancelRequest>(r#"{"id":-1}"#),
            "`id`: expected a non-negative integer, found integer `-1`",
        ),
        (
            error::<alloc::AllocRequest>(r#"{"id":1,"priority":4294967296,"jobspec":{}}"#),
            "`priority`: expected an integer from 0 to 4294967295, found integer `4294967296`",
        ),
        (
            error::<exec::HelloRequest>(r#"{"service":null}"#),
            "`service`: expected a string, found null",
        ),
        (
            error::<alloc::FreeRequest>(r#"{"id":1,"final":0}"#),
            "`final`: expected a boolean, found integer `0`",
        ),
        (
            error::<alloc::ExpirationRequest>(r#"{"id":1,"expiration":"soon"}"#),
            r#"`expiration`: expected a number, found string "soon""#,
        ),
        (
            error::<alloc::ReadyRequest>(r#"{"mode":"some"}"#),
            "`mode`: expected `unlimited` or `limited`, found `some`",
        ),
        (
            error::<AllocResponse>(r#"{"id":1,"type":9}"#),
            "`type`: unknown type 9: expected 0 to 3",
        ),
        (
            error::<exec::StartResponse<Json>>(r#"{"id":1,"type":"dance"}"#),
            "`type`: unknown type `dance`: expected start, reattached, release, exception or finish",
        ),
        (
            error::<alloc::PrioritizeRequest>(r#"{"jobs":[[1,2],[3]]}"#),
            "`jobs[1]`: invalid length 1, expected a tuple of size 2",
        ),
        (
            error::<acquire::ChangeResponse<Json>>(r#"{"property-add":{"a":"0","b":"x"}}"#),
            "`property-add.b`: invalid idset \"x\": expected a number at byte 0",
        ),
        (
            error::<job_manager::JobsRequest>(r#"{"all":false,"ids":[1, 2,"x"],"userid":1}"#),
            r#"`ids[2]`: expected a non-negative integer, found string "x""#,
        ),
        (
            error::<job_list::WaitRequest>("{\n\"ids\": [\n1,\n-1]\n}"),
            "`ids[1]`: expected a non-negative integer, found integer `-1`",
        ),
        (
            error::<job_list::WaitRequest>(r#"{"ids":7}"#),
            "`ids`: expected an array, found integer `7`",
        ),
        (
            error::<job_manager::MemoRequest>(r#"{"id":1,"memo":[]}"#),
            "`memo`: expected an object, found an array",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn names_that_a_request_looks_for_are_limited() {
    let named =
        |key: &str, length: usize| format!(r#"{{"job":1,"{key}":"{}"}}"#, "x".repeat(length));
    let (longest, longer) = (named("id", 4096), named("id", 4097));
    assert!(read::<pmix::CancelRequest>(Some(longest.as_bytes())).is_ok());
    assert!(read::<pmix::JobRequest>(Some(longest.as_bytes())).is_ok());
    assert!(read::<pmix::CancelRequest>(Some(br#"{"job":1,"id":null}"#)).is_ok());
    let expected = "expected at most 4096 bytes, found 4097";
    for error in [
        error::<pmix::CancelRequest>(&longer),
        error::<pmix::JobRequest>(&longer),
        error::<broker::NameRequest>(&named("name", 4097)),
    ] {
        assert!(error.contains(expected), "{error}");
    }
}

/// In memory short entries take many times as much as their text.
#[test]
fn lists_and_values_of_requests_are_limited() {
    let ids = |key: &str, count: usize| format!(r#"{{"{key}":[{}1]}}"#, "1,".repeat(count - 1));
    let million = ids("ids", 1_000_000);
    let named: job_manager::JobsRequest = read(Some(million.as_bytes())).unwrap();
    assert_eq!(named.ids.map(|ids| ids.len()), Some(1_000_000));
    let too_many = ids("ids", 3_000_001);
    let pairs = format!(r#"{{"jobs":[{}[1,1]]}}"#, "[1,1],".repeat(3_000_000));
    let ops = format!(r#"{{"ops":[{}]}}"#, vec![r#"{"key":""}"#; 5001].join(","));
    let lists = [
        (
            error::<job_manager::JobsRequest>(&too_many),
            "ids",
            3_000_000,
        ),
        (
            error::<job_manager::PurgeRequest>(&too_many),
            "ids",
            3_000_000,
        ),
        (error::<job_list::ListRequest>(&too_many), "ids", 3_000_000),
        (error::<job_list::WaitRequest>(&too_many), "ids", 3_000_000),
        (error::<sched::JobsRequest>(&too_many), "ids", 3_000_000),
        (error::<alloc::PrioritizeRequest>(&pairs), "jobs", 3_000_000),
        (
            error::<job_manager::PrioritizeRequest>(&pairs),
            "jobs",
            3_000_000,
        ),
        (error::<kvs::CommitRequest>(&ops), "ops", 5000),
    ];
    for (error, key, most) in lists {
        assert_eq!(error, format!("`{key}`: expected at most {most} entries"));
    }
    let list = format!("[{}1]", "1,".repeat(1 << 19));
    let memo = format!(r#"{{"id":1,"memo":{{"a":{list}}}}}"#);
    let updates = format!(r#"{{"id":1,"updates":{{"a":{list}}}}}"#);
    let alloc = |directive: &str, attributes: &str| {
        format!(r#"{{"job":1,"directive":{directive},"attributes":{attributes}}}"#)
    };
    let entry = format!(r#"{{"ops":[{{"key":"a","dirent":{{"type":"dir","data":{list}}}}}]}}"#);
    let filter = format!(r#"{{"allow":{{"a":{list}}},"full":false}}"#);
    let constraint = format!(r#"{{"constraint":{{"userid":{list}}}}}"#);
    let values = [
        (error::<job_manager::MemoRequest>(&memo), "memo"),
        (error::<job_manager::UpdateRequest>(&updates), "updates"),
        (error::<job_manager::JournalRequest>(&filter), "allow"),
        (
            error::<pmix::AllocRequest>(&alloc("1", &list)),
            "attributes",
        ),
        (error::<kvs::CommitRequest>(&entry), "ops[0].dirent.data"),
        (error::<job_list::ListRequest>(&constraint), "constraint"),
    ];
    for (error, key) in values {
        let expected = format!("`{key}`: expected at most 1048576 bytes of JSON");
        assert_eq!(error, expected);
    }
    let name = format!("\"{}\"", "x".repeat(4095));
    assert_eq!(
        error::<pmix::AllocRequest>(&alloc(&name, "[]")),
        "`directive`: expected at most 4096 bytes of JSON"
    );
    // With the object and the list around them.
    let memo = |values: usize| {
        let list = vec!["[]"; values - 2].join(",");
        format!(r#"{{"id":1,"memo":{{"a":[{list}]}}}}"#)
    };
    assert!(read::<job_manager::MemoRequest>(Some(memo(100_000).as_bytes())).is_ok());
    assert_eq!(
        error::<job_manager::MemoRequest>(&memo(100_001)),
        "`memo`: expected at most 100000 values"
    );
    let wrong = error::<pmix::AllocRequest>(&alloc("1", "{}"));
    assert_eq!(wrong, "`attributes`: expected an array, found an object");
    let entry = r#"{"ops":[{"key":"a","dirent":{"type":"val","data":5}}]}"#;
    assert_eq!(
        error::<kvs::CommitRequest>(entry),
        "`ops[0].dirent.data`: expected a string, the target of a link, an object or an array of strings"
    );
}

#[test]
fn an_array_is_no_object_within_a_payload_either() {
    let nested = [
        error::<kvs::CommitRequest>(r#"{"ops":[["a",0,null]]}"#),
        error::<kvs::CommitRequest>(r#"{"ops":[{"key":"a","dirent":[1,"val",""]}]}"#),
        error::<kvs::LookupResponse>(r#"{"val":[1,"val",""]}"#),
        error::<job_list::ListResponse>(r#"{"jobs":[[]]}"#),
        error::<AllocResponse<Annotations>>(r#"{"id":1,"type":1,"annotations":{"sched":[]}}"#),
        error::<resource::HistoryResponse>(r#"{"events":[[]]}"#),
        error::<sched::ExplainResponse>(r#"{"errors":{},"jobs":[[1]]}"#),
        error::<pmix::QueryResponse>(r#"{"status":0,"reason":"","requests":[[1]]}"#),
    ];
    let places = [
        "ops[0]",
        "ops[0].dirent",
        "val",
        "jobs[0]",
        "annotations.sched",
        "events[0]",
        "jobs[0]",
        "requests[0]",
    ];
    for (error, place) in nested.iter().zip(places) {
        assert_eq!(
            *error,
            format!("`{place}`: expected an object, found an array")
        );
    }
}

#[test]
fn what_is_not_json_is_rejected_with_the_byte() {
    let error = read::<alloc::CancelRequest>(Some(b"{\"id\":\n1")).unwrap_err();
    assert!(error.is_syntax());
    assert_eq!(
        error.to_string(),
        "invalid JSON: EOF while parsing an object at byte 8"
    );
    let error = read::<alloc::CancelRequest>(Some(b"{\"id\":1} x")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid JSON: trailing characters at byte 10"
    );
}

#[test]
fn strings_and_documents_are_borrowed() {
    let text = r#"{"id":1,"userid":2,"jobspec":{"a": [1, 2]},"R":{}}"#;
    let start: exec::StartRequest = read(Some(text.as_bytes())).unwrap();
    let range = text.as_bytes().as_ptr_range();
    assert!(range.contains(&start.jobspec.0.as_ptr()));
    assert_eq!(start.jobspec, Json(r#"{"a": [1, 2]}"#));
    let hello: exec::HelloRequest = read(Some(br#"{"service":"job-exec"}"#)).unwrap();
    assert!(matches!(
        hello.service,
        Text(std::borrow::Cow::Borrowed("job-exec"))
    ));
    let hello: exec::HelloRequest = read(Some(br#"{"service":"job\u002dexec"}"#)).unwrap();
    assert!(matches!(hello.service, Text(std::borrow::Cow::Owned(_))));
}

#[test]
fn data_of_a_start_response_is_read_by_its_type() {
    let text = br#"{"id":1,"type":"release","data":{"ranks":"0-1","final":false}}"#;
    let response: exec::StartResponse<Json> = read(Some(text)).unwrap();
    let exec::ExecEvent::Release(release) = response.event().unwrap() else {
        panic!("no release");
    };
    let ranks = exec::ReleasedRanks::Ranks("0-1".parse().unwrap());
    assert_eq!(
        release,
        exec::Release {
            ranks,
            is_final: false
        }
    );
    let other = exec::StartResponse {
        data: Json("{}"),
        ..response
    };
    assert_eq!(
        other.event().unwrap_err().to_string(),
        "missing key `ranks`"
    );
}

#[test]
fn a_start_response_has_an_object_as_data() {
    for kind in ["start", "reattached", "release", "exception", "finish"] {
        let text = format!(r#"{{"id":1,"type":"{kind}"}}"#);
        let missing = read::<exec::StartResponse<Json>>(Some(text.as_bytes())).unwrap_err();
        assert_eq!(missing.to_string(), "missing key `data`");
        for (data, found) in [("null", "null"), ("[]", "an array")] {
            let text = format!(r#"{{"id":1,"type":"{kind}","data":{data}}}"#);
            let response: exec::StartResponse<Json> = read(Some(text.as_bytes())).unwrap();
            assert_eq!(
                response.event().unwrap_err().to_string(),
                format!("expected an object, found {found}")
            );
        }
    }
}

#[test]
fn an_annotation_is_left_out_removed_or_set() {
    let annotations = Annotations {
        sched: alloc::SchedAnnotations {
            reason_pending: Member::Null,
            t_estimate: Member::Value(1.5),
            ..alloc::SchedAnnotations::default()
        },
    };
    let response = AllocResponse {
        annotations: Some(annotations),
        ..AllocResponse::new(JobId::new(1), AllocResponseType::Annotate)
    };
    assert_eq!(
        response.to_payload(),
        b"{\"id\":1,\"type\":1,\"annotations\":{\"sched\":{\"reason_pending\":null,\"t_estimate\":1.5}}}\0"
    );
}

#[test]
fn a_document_that_is_not_json_is_written_as_a_string() {
    let request = alloc::FeasibilityRequest {
        jobspec: Json("{oops"),
    };
    assert_eq!(request.to_payload(), b"{\"jobspec\":\"{oops\"}\0");
}

#[test]
fn bulk_errors_are_in_the_order_of_the_request() {
    let errors = Map::from_iter([("2".to_owned(), "b".into()), ("1".to_owned(), "a".into())]);
    let response = job_manager::BulkResponse {
        count: 0,
        errors,
        unlisted: 0,
    };
    assert_eq!(
        response.to_payload(),
        b"{\"count\":0,\"errors\":{\"2\":\"b\",\"1\":\"a\"}}\0"
    );
}

#[test]
fn a_document_of_a_payload_is_found_by_its_key() {
    let text = br#"{"id":1,"R":{"a": [1, {"R":2}]},"none":null,"twice":1,"twice":"2"}"#;
    let found = |key| document(Some(text), key).unwrap();
    assert_eq!(found("R"), Some(Json(r#"{"a": [1, {"R":2}]}"#)));
    assert_eq!(found("id"), Some(Json("1")));
    assert_eq!(found("twice"), Some(Json("\"2\"")));
    assert_eq!((found("none"), found("absent")), (None, None));
    assert_eq!(document(None, "R"), Ok(None));
    let listed = document(Some(b"[1]"), "R").unwrap_err();
    assert_eq!(listed.to_string(), "expected an object, found an array");
    assert!(document(Some(b"{\"R\":1"), "R").unwrap_err().is_syntax());
}

#[test]
fn every_payload_makes_the_round_trip() {
    let samples = include_str!("payloads.rs");
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut missing = Vec::new();
    for source in std::fs::read_dir(sources).unwrap() {
        let path = source.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let payloads = text.split("Payload for ").skip(1).map(|rest| {
            let name = rest.split(|letter: char| !letter.is_alphanumeric()).next();
            name.unwrap()
        });
        missing.extend(payloads.map(str::to_owned).filter(|name| {
            let is_sample = |check: &str| {
                samples.contains(&format!("{check}::<{name}"))
                    || samples.contains(&format!("{check}::<{module}::{name}"))
            };
            !is_sample("round_trip") && !is_sample("written")
        }));
    }
    assert_eq!(missing, [""; 0]);
}

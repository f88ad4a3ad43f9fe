use penstock_flux::acquire::{ChangeResponse, InventoryResponse};
use penstock_flux::flags::STREAMING;
use penstock_flux::{Json, Payload};
use proptest::prelude::*;

use super::*;

const RANKS: u32 = 6;

fn request(payload: AcquireRequest) -> Message {
    let payload = payload.to_payload();
    let mut request = Message::request("resource.acquire", "")
        .with_flags(STREAMING)
        .with_matchtag(3);
    request.set_payload(Some(payload));
    request
}

/// The inventory, as the resource service passes it to the provider.
#[derive(Clone, Debug)]
struct State {
    ranks: IdSet,
    exclude: IdSet,
    up: IdSet,
    properties: Properties,
    expiration: f64,
}

impl State {
    fn resources(&self) -> Arc<ResourceSet> {
        let hosts = format!("node[0-{}]", RANKS - 1).parse().unwrap();
        let all = ResourceSet::uniform(
            &(0..=RANKS - 1).into(),
            &hosts,
            (0..=1).into(),
            IdSet::new(),
        );
        let mut resources = all.unwrap().restrict(&self.ranks);
        for (name, ranks) in &self.properties {
            resources
                .add_property(name, &(ranks & &self.ranks))
                .unwrap();
        }
        let end = Some(self.expiration).filter(|&end| end > 0.0);
        resources.set_expiration(end).unwrap();
        Arc::new(resources)
    }
}

/// A scheduler's view, built from responses alone; it panics where one breaks RFC 28.
#[derive(Debug, Default)]
struct Consumer {
    ranks: IdSet,
    up: IdSet,
    properties: Properties,
    expiration: f64,
}

impl Consumer {
    fn new(first: &Message) -> Self {
        let first: InventoryResponse<'_> = read(first.payload_json()).unwrap();
        let resources = ResourceSet::from_json(first.resources.as_str()).unwrap();
        assert!(first.up.is_subset(&resources.ranks()));
        Self {
            ranks: resources.ranks(),
            up: first.up,
            properties: resources.properties().clone(),
            expiration: resources.expiration().unwrap_or(0.0),
        }
    }

    fn apply(&mut self, message: &Message) {
        let Some(TypedPayload::InventoryChange(value)) = message.typed() else {
            panic!("no value");
        };
        let change: ChangeResponse<Json<'_>> = read(message.payload_json()).unwrap();
        assert!(!change.is_empty());
        if let Some(grow) = change.grow {
            let more = ResourceSet::from_json(grow.as_str()).unwrap();
            assert_eq!(value.grow.as_deref(), Some(&more));
            assert!(!more.ranks().is_empty() && more.ranks().is_disjoint(&self.ranks));
            self.ranks.union_with(&more.ranks());
            for (name, ranks) in more.properties() {
                let known = self.properties.entry(name.clone()).or_default();
                known.union_with(ranks);
            }
        }
        let (up, down) = (
            change.up.unwrap_or_default(),
            change.down.unwrap_or_default(),
        );
        let gone = change.shrink.unwrap_or_default();
        assert!(up.is_subset(&(&self.ranks - &self.up)) && down.is_subset(&self.up));
        assert!((&gone & &self.up).is_subset(&down) && gone.is_subset(&self.ranks));
        assert!(up.is_disjoint(&gone));
        self.up = &(&self.up | &up) - &down;
        for (name, ranks) in change.property_add.unwrap_or_default() {
            let known = self.properties.entry(name).or_default();
            assert!(!ranks.is_empty() && ranks.is_disjoint(known));
            known.union_with(&ranks);
        }
        for (name, ranks) in change.property_remove.unwrap_or_default() {
            let known = self.properties.get_mut(&name).unwrap();
            assert!(!ranks.is_empty() && ranks.is_subset(known));
            known.subtract(&ranks);
        }
        self.ranks.subtract(&gone);
        self.properties = within(&self.properties, &self.ranks);
        self.expiration = change.expiration.unwrap_or(self.expiration);
    }
}

fn subset() -> impl Strategy<Value = IdSet> {
    prop::collection::btree_set(0..RANKS, 0..5).prop_map(|ranks| ranks.into_iter().collect())
}

fn state() -> impl Strategy<Value = State> {
    let properties = prop::collection::btree_map("[ab]", subset(), 0..3);
    let expiration = prop::sample::select(vec![0.0, 5.5, 7.0]);
    (subset(), subset(), subset(), properties, expiration).prop_map(
        |(mut ranks, exclude, up, properties, expiration)| {
            ranks.insert(0);
            State {
                ranks,
                exclude,
                up,
                properties,
                expiration,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_scheduler_knows_what_the_provider_knows(
        first in state(),
        states in prop::collection::vec((state(), any::<bool>()), 0..12),
        grow_ok in any::<bool>(),
    ) {
        let mut provider = AcquireProvider::new(first.resources(), &first.exclude, &first.up);
        let mut consumer = Consumer::new(&provider.acquire(&request(AcquireRequest { grow_ok })));
        prop_assert_eq!(&consumer.ranks, &(&first.ranks - &first.exclude));
        for (state, settled) in states {
            provider.update(state.resources(), &state.exclude, &state.up);
            if !settled {
                continue;
            }
            if let Some(change) = provider.take_changes() {
                consumer.apply(&change);
            }
            prop_assert!(provider.take_changes().is_none(), "no change is reported twice");
            let schedulable = &state.ranks - &state.exclude;
            prop_assert!(consumer.ranks.is_subset(&state.ranks));
            prop_assert!(!grow_ok || schedulable.is_subset(&consumer.ranks));
            prop_assert_eq!(&consumer.up, &(&(&state.up & &schedulable) & &consumer.ranks));
            prop_assert_eq!(&consumer.properties, &within(&state.properties, &consumer.ranks));
            prop_assert_eq!(consumer.expiration.to_bits(), state.expiration.to_bits());
        }
    }
}

#[test]
fn one_scheduler_at_a_time_holds_the_resources() {
    let state = State {
        ranks: (0..=3).into(),
        exclude: IdSet::new(),
        up: (0..=2).into(),
        properties: Properties::new(),
        expiration: 0.0,
    };
    let mut provider = AcquireProvider::new(state.resources(), &state.exclude, &state.up);
    let plain = Message::request("resource.acquire", "");
    assert_eq!(provider.acquire(&plain).errnum(), EPROTO);
    let mut malformed = request(AcquireRequest { grow_ok: false });
    malformed.set_payload(Some(Message::json_payload("[]")));
    let response = provider.acquire(&malformed);
    assert_eq!(response.errnum(), EPROTO);
    assert_eq!(
        response.error_text().as_deref(),
        Some("resource.acquire: expected an object, found an array")
    );
    assert!(!provider.is_acquired());
    assert_eq!(
        provider
            .acquire(&request(AcquireRequest { grow_ok: false }))
            .errnum(),
        0
    );
    // EBUSY precedes all other errors.
    assert_eq!(provider.acquire(&plain).errnum(), EBUSY);
    assert!(!provider.disconnect(b"another"));
    assert!(provider.cancel(b"", 4).is_none() && provider.cancel(b"x", 3).is_none());
    let last = provider.cancel(b"", 3).unwrap();
    assert_eq!(
        (last.errnum(), last.matchtag, last.is_streaming()),
        (ENODATA, 3, true)
    );
    assert_eq!(
        provider
            .acquire(&request(AcquireRequest { grow_ok: false }))
            .errnum(),
        0
    );
    assert!(provider.disconnect(b""));
    assert!(!provider.is_acquired());
}

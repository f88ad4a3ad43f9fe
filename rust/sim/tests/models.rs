//! Generated workloads: reproducible by their seed, and like the published ones.

use penstock_sim::{
    Error, Estimates, JobKinds, Lublin, MAX_GENERATED_JOBS, Mix, Random, SubmitSpan, TraceJob,
    Workload, swf,
};

fn jobs(workload: &Workload) -> Vec<TraceJob> {
    (0..workload.len())
        .filter_map(|index| workload.job(index))
        .collect()
}

fn model(kinds: JobKinds, load: Option<f64>) -> Lublin {
    Lublin {
        jobs: 20_000,
        cores: 128,
        seed: 1,
        load,
        estimates: Estimates::Exact,
        kinds,
    }
}

/// FNV-1a: a digest that needs no library.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn share(jobs: &[TraceJob], test: impl Fn(&TraceJob) -> bool) -> f64 {
    let found = u32::try_from(jobs.iter().filter(|job| test(job)).count()).unwrap();
    f64::from(found) / f64::from(u32::try_from(jobs.len()).unwrap())
}

#[test]
fn a_seed_determines_every_byte() {
    let lublin = Lublin {
        jobs: 1000,
        estimates: Estimates::Modal,
        ..model(JobKinds::Both, Some(0.8))
    };
    let text = swf::write(&lublin.draw().unwrap()).unwrap();
    assert_eq!(text, swf::write(&lublin.draw().unwrap()).unwrap());
    assert_eq!(digest(&text), LUBLIN_DIGEST, "{:#x}", digest(&text));
    let other = Lublin { seed: 2, ..lublin };
    assert_ne!(text, swf::write(&other.draw().unwrap()).unwrap());
    let mix = mix("80%:1c:10m,20%:1-64c:1m-2h");
    let text = swf::write(&mix.draw().unwrap()).unwrap();
    assert_eq!(digest(&text), MIX_DIGEST, "{:#x}", digest(&text));
}

const LUBLIN_DIGEST: u64 = 0xed48_8602_3f9f_e9c3;
const MIX_DIGEST: u64 = 0x3ff1_25bf_cfda_2798;

#[test]
fn sizes_are_as_published() {
    for (kinds, serial, power_of_two) in [
        (JobKinds::Batch, 0.2927, 0.6686),
        (JobKinds::Interactive, 0.1541, 0.625),
    ] {
        let jobs = jobs(&model(kinds, None).draw().unwrap());
        let found = share(&jobs, |job| job.shape.slots == 1);
        assert!((found - serial).abs() < 0.015, "{kinds:?}: serial {found}");
        // Other sizes are powers of two by chance.
        let powers = share(&jobs, |job| {
            job.shape.slots.min() > 1 && job.shape.slots.min().is_power_of_two()
        });
        assert!(powers > power_of_two - 0.015, "{kinds:?}: powers {powers}");
        assert!(
            jobs.iter()
                .all(|job| (1..=128).contains(&job.shape.slots.min()))
        );
    }
}

#[test]
fn run_times_are_as_published() {
    // Of serial jobs, the mixture is p = pa + pb: the mean logarithm follows from it.
    for (kinds, first, mean) in [
        (
            JobKinds::Interactive,
            0.9038,
            0.9038 * 2.533 + 0.0962 * 4.849,
        ),
        (JobKinds::Batch, 0.6956, 0.6956 * 5.407 + 0.3044 * 9.970),
    ] {
        let jobs = jobs(&model(kinds, None).draw().unwrap());
        let logarithms: Vec<f64> = jobs
            .iter()
            .filter(|job| job.shape.slots == 1)
            .map(|job| job.run.ln())
            .collect();
        let count = f64::from(u32::try_from(logarithms.len()).unwrap());
        let found = logarithms.iter().sum::<f64>() / count;
        // Times are whole seconds, and none is longer than e^12: both move the mean a little.
        assert!(
            (found - mean).abs() < 0.15,
            "{kinds:?} {first}: {found}, {mean}"
        );
        assert!(jobs.iter().all(|job| job.run >= 1.0 && job.run < 162_756.0));
        assert!(jobs.iter().all(|job| job.run.fract() == 0.0));
    }
    // Larger jobs run longer.
    let jobs = jobs(&model(JobKinds::Both, None).draw().unwrap());
    let mean = |jobs: Vec<&TraceJob>| {
        let count = f64::from(u32::try_from(jobs.len()).unwrap());
        jobs.iter().map(|job| job.run).sum::<f64>() / count
    };
    let small = mean(
        jobs.iter()
            .filter(|job| job.shape.slots.min() <= 4)
            .collect(),
    );
    let large = mean(
        jobs.iter()
            .filter(|job| job.shape.slots.min() >= 64)
            .collect(),
    );
    assert!(large > 1.5 * small, "{small} {large}");
}

#[test]
fn most_jobs_come_in_the_afternoon_and_few_at_night() {
    let workload = model(JobKinds::Batch, None).draw().unwrap();
    // The first arrival is taken as second 0; it is some time after midnight.
    let jobs = jobs(&workload);
    let mut hours = [0u32; 24];
    for job in &jobs {
        let hour = (job.submit / 3600.0) % 24.0;
        let begun = (1u8..24).filter(|tick| f64::from(*tick) <= hour).count();
        hours[begun] += 1;
    }
    let busiest = *hours.iter().max().unwrap();
    let quietest = *hours.iter().min().unwrap();
    assert!(busiest > 4 * quietest, "{hours:?}");
}

#[test]
fn a_workload_has_the_requested_load() {
    for load in [0.5, 0.8, 1.2] {
        let workload = model(JobKinds::Both, Some(load)).draw().unwrap();
        let span = workload.span().unwrap();
        let found = workload.core_seconds() / (128.0 * (span.last - span.first));
        assert!((found - load).abs() < 0.01 * load, "{load}: {found}");
    }
}

#[test]
fn estimates_are_never_below_the_run_time() {
    let mut random = Random::new(3);
    for run in [
        1.0, 10.0, 299.0, 300.0, 7200.0, 100_000.0, 172_800.0, 200_000.0,
    ] {
        for _ in 0..1000 {
            assert!((Estimates::Exact.draw(run, &mut random) - run).abs() < 1e-9);
            let factor = Estimates::Factor(3.0).draw(run, &mut random);
            assert!((run..=3.0 * run + 1.0).contains(&factor));
            let modal = Estimates::Modal.draw(run, &mut random);
            assert!(modal >= run && modal % 300.0 == 0.0, "{run}: {modal}");
            assert!(modal <= 172_800.0_f64.max(run + 86_400.0));
        }
    }
    for text in ["exact", "modal", "factor:2.5"] {
        assert_eq!(text.parse::<Estimates>().unwrap().to_string(), text);
    }
    for text in ["", "factor:", "factor:0.5", "factor:nan", "best"] {
        let error = text.parse::<Estimates>().unwrap_err().to_string();
        assert!(
            error.contains("expected exact, modal or factor:F"),
            "{error}"
        );
    }
}

fn mix(shapes: &str) -> Mix {
    Mix {
        shapes: shapes.to_owned(),
        jobs: 1000,
        cores: 640,
        cores_per_node: 10,
        seed: 1,
        load: Some(0.9),
        estimates: Estimates::Exact,
    }
}

#[test]
fn a_mix_has_its_weights() {
    let workload = mix("80%:1c:10m,20%:4-8n:1h-2h").draw().unwrap();
    let jobs = jobs(&workload);
    let small = share(&jobs, |job| job.shape.nodes.is_none());
    assert!((small - 0.8).abs() < 0.05, "{small}");
    for job in &jobs {
        match &job.shape.nodes {
            None => assert!((job.shape.slots.min(), job.run) == (1, 600.0)),
            Some(nodes) => {
                assert!((4..=8).contains(&nodes.min()) && job.shape.exclusive);
                assert!((3600.0..=7200.0).contains(&job.run));
            }
        }
    }
    for (name, nodes) in [("uniform", false), ("1core", false), ("nodes", true)] {
        let workload = mix(name).draw().unwrap();
        assert_eq!(workload.job(0).unwrap().shape.nodes.is_some(), nodes);
    }
    let at_once = Mix {
        load: None,
        ..mix("1core")
    };
    assert_eq!(at_once.draw().unwrap().span(), Some(SubmitSpan::default()));
    // A component without a weight gets what the others leave.
    let jobs = self::jobs(&mix("90%:1c:1m,2c:1m").draw().unwrap());
    let two = share(&jobs, |job| job.shape.slots == 2);
    assert!((two - 0.1).abs() < 0.03, "{two}");
}

#[test]
fn an_invalid_mix_is_rejected_with_its_component() {
    for (text, message) in [
        ("", "expected WEIGHT%:SIZE:TIME"),
        ("fast", "expected WEIGHT%:SIZE:TIME"),
        ("1c", "expected WEIGHT%:SIZE:TIME"),
        ("80:1c:1m", "expected a weight such as 80%"),
        ("120%:1c:1m", "expected a weight such as 80%"),
        ("1x:1m", "expected a size such as 4c or 2n"),
        ("0c:1m", "expected a size such as 4c, 2n or 1-8c"),
        ("8-1c:1m", "expected a size such as 4c, 2n or 1-8c"),
        ("1c:soon", "expected a time such as 10m or 1m-2h"),
        ("1c:inf", "expected a time such as 10m or 1m-2h"),
        ("0%:1c:1m", "expected a weight above 0%"),
        ("0%:1c:1m,2c:1m", "expected a weight above 0%"),
        (
            "100%:1c:1m,2c:1m",
            "expected weights below 100 % together, for those that have none",
        ),
        (
            "50%:1c:1m,60%:2c:1m",
            "expected weights of 100 % at most together, found 110 %",
        ),
    ] {
        let error = mix(text).draw().unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn too_many_generated_jobs_are_rejected() {
    let lublin = Lublin {
        jobs: MAX_GENERATED_JOBS + 1,
        ..model(JobKinds::Both, None)
    };
    let mix = Mix {
        jobs: u32::MAX,
        ..mix("1c:1h")
    };
    for (drawn, found) in [
        (lublin.draw(), "100,000,001"),
        (mix.draw(), "4,294,967,295"),
    ] {
        let expected = format!("jobs: expected at most 100,000,000, found {found}");
        assert_eq!(drawn.unwrap_err().to_string(), expected);
    }
}

#[test]
fn generation_can_be_stopped() {
    type Draw<'a> = &'a dyn Fn(&mut dyn FnMut() -> bool) -> Result<Workload, Error>;
    let lublin = model(JobKinds::Both, None);
    let mix = Mix {
        jobs: 20_000,
        ..mix("1c:1h")
    };
    let draws: [Draw; 2] = [
        &|may_continue| lublin.draw_while(may_continue),
        &|may_continue| mix.draw_while(may_continue),
    ];
    for draw in draws {
        let mut most = 0;
        assert!(
            draw(&mut || {
                most += 1;
                true
            })
            .is_ok()
        );
        assert!(most > 2, "{most} calls");
        for stop in 1..=most {
            let mut calls = 0;
            assert!(
                draw(&mut || {
                    calls += 1;
                    calls < stop
                })
                .is_err()
            );
            assert_eq!(calls, stop, "it continues");
        }
    }
}

#[test]
fn impossible_parameters_are_rejected() {
    let lublin = Lublin {
        cores: 0,
        ..model(JobKinds::Both, None)
    };
    assert_eq!(
        lublin.draw().unwrap_err().to_string(),
        "cores: expected 1 or more, found 0"
    );
    for load in [0.0, -1.0, f64::NAN] {
        let error = model(JobKinds::Both, Some(load)).draw().unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("load: expected a number above 0")
        );
    }
    for (load, message) in [
        (f64::INFINITY, "load: expected at most 1000, found inf"),
        (1e300, "load: expected at most 1000, found 1e300"),
        (1e-300, "load: 1e-300 makes jobs come at second "),
    ] {
        let error = model(JobKinds::Both, Some(load)).draw().unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
    }
    for jobs in [0, 1, 2] {
        for cores in [1, 2, 3, 100_000] {
            let lublin = Lublin {
                jobs,
                cores,
                ..model(JobKinds::Both, Some(0.8))
            };
            let workload = lublin.draw().unwrap();
            assert_eq!(workload.len(), jobs as usize);
            assert!(workload.is_empty() || workload.max_cores() == u64::from(cores));
        }
    }
}

#[test]
fn a_workload_can_be_varied_in_pace_and_estimates() {
    let workload = mix("1c:10m").draw().unwrap();
    let same = workload.vary(1.0, None, 0).unwrap();
    assert_eq!(jobs(&same), jobs(&workload));
    assert_eq!(same.assumptions(), workload.assumptions());
    let varied = workload.vary(4.0, Some(Estimates::Modal), 1).unwrap();
    for (job, before) in jobs(&varied).iter().zip(jobs(&workload)) {
        assert!((job.submit - before.submit / 4.0).abs() <= 0.5);
        assert!((job.id, job.run) == (before.id, before.run) && job.limit >= job.run);
    }
    let [_, pace, estimates] = varied.assumptions() else {
        panic!("two sentences more")
    };
    assert!(pace.starts_with("jobs come 4 times as fast"));
    assert_eq!(estimates, "estimates are generated: modal, seed 1");
    for pace in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = workload.vary(pace, None, 0).unwrap_err().to_string();
        assert!(
            error.starts_with("pace: expected a number above 0"),
            "{error}"
        );
    }
    let error = workload.vary(1e-308, None, 0).unwrap_err().to_string();
    assert!(
        error.contains("pace: 1e-308 makes jobs come at second inf"),
        "{error}"
    );
}

#[test]
fn generated_estimates_replace_assumed_ones() {
    let text = "1 0 -1 60 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1";
    let workload = swf::read(text.as_bytes(), "a", None).unwrap();
    let said = workload.assumptions().join("\n");
    assert!(
        said.contains("the run time is taken as the estimate"),
        "{said}"
    );
    let varied = workload.vary(1.0, Some(Estimates::Modal), 1).unwrap();
    let said = varied.assumptions().join("\n");
    assert!(
        !said.contains("the run time is taken as the estimate"),
        "{said}"
    );
    assert!(said.contains("estimates are generated"), "{said}");
}

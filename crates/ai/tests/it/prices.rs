//! Prices: valid ones, invalid ones, and the cost of answers.

use longshore::time::Timestamp;
use longshore_ai::{
    Answer, Cost, Price, PriceMode, PriceShare, PriceTable, Prices, Profile, ProviderName, Rate, Tier,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn prices(written: Value) -> Prices {
    serde_json::from_value(written).unwrap()
}

fn refused(written: Value) -> String {
    serde_json::from_value::<Prices>(written.clone()).expect_err(&written.to_string()).to_string()
}

fn time(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn tokens(tokens_in: u64, tokens_out: u64) -> Answer {
    Answer { tokens_in, tokens_out, ..Answer::default() }
}

const NOW: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);

#[test]
fn the_short_form_is_dollars_per_million_tokens_and_exact() {
    let short = prices(json!({ "input": 3, "output": "15" }));
    assert_eq!(short, Prices::flat(Price::dollars(3), Price::dollars(15)));
    assert_eq!(short.cost(&tokens(1_000_000, 0), NOW, PriceMode::Direct), Cost(3_000_000_000_000));
    assert_eq!(short.cost(&tokens(10, 20), NOW, PriceMode::Direct), Cost(30_000_000 + 300_000_000));
    assert_eq!(prices(json!({})), Prices::default());
    let tiny = prices(json!({ "input": 0.1, "output": 0.5, "cache_read": 0.01 }));
    let cached = Answer { tokens_in: 1, tokens_cached: 1, ..Answer::default() };
    assert_eq!(tiny.cost(&cached, NOW, PriceMode::Direct), Cost(10_000), "one token is not nothing");
}

#[test]
fn each_kind_of_token_has_its_price_and_without_one_that_of_questions() {
    let answer = Answer {
        tokens_in: 1_111,
        tokens_cached: 1_000,
        tokens_cache_write: 100,
        tokens_cache_write_long: 10,
        tokens_out: 5,
        ..Answer::default()
    };
    let plain = prices(json!({ "input": 1, "output": 2 }));
    assert_eq!(plain.cost(&answer, NOW, PriceMode::Direct), Cost(1_121_000_000));
    let all = prices(json!({ "input": 1, "output": 2, "cache_read": 0.1, "cache_write": 1.25,
        "cache_write_long": 2 }));
    let cost = 1_000_000 + 100_000_000 + 125_000_000 + 20_000_000 + 10_000_000;
    assert_eq!(all.cost(&answer, NOW, PriceMode::Direct), Cost(cost));
    assert!(all.at_most(1_111, 5, NOW, PriceMode::Direct) >= Cost(cost));
    assert_eq!(all.at_most(10, 0, NOW, PriceMode::Direct), Cost(20_000_000), "all of it may be written");
}

#[test]
fn a_batch_costs_what_it_says_and_the_normal_price_without_a_word() {
    let cost = |written: Value| prices(written).cost(&tokens(3, 1), NOW, PriceMode::Batch);
    assert_eq!(cost(json!({ "input": 1, "output": 2 })), Cost(5_000_000));
    assert_eq!(cost(json!({ "input": 1, "output": 2, "batch": 0.5 })), Cost(2_500_000));
    let own = json!({ "input": 1, "output": 2, "batch_input": 0.4, "batch_output": 0.6 });
    assert_eq!(cost(own.clone()), Cost(1_800_000));
    assert_eq!(prices(own).cost(&tokens(3, 1), NOW, PriceMode::Direct), Cost(5_000_000));
    let odd = json!({ "input": 0.000_001, "output": 0, "batch": 0.5 });
    assert_eq!(cost(odd), Cost(2), "one and a half, rounded once");
}

#[test]
fn the_most_particular_tier_holds_for_the_whole_call() {
    let prices = prices(json!({ "input": 1, "output": 10, "cache_read": 0.1, "tiers": [
        { "above": 200_000, "input": 2, "output": 15 },
        { "above": 400_000, "input": 3 },
        { "tier": "priority", "input": 5 },
        { "tier": "priority", "above": 200_000, "input": 7 },
    ] }));
    let cost = |tokens_in, tier: Option<&str>| {
        let answer = Answer { tokens_in, tokens_out: 1, tier: tier.map(Into::into), ..Answer::default() };
        prices.cost(&answer, NOW, PriceMode::Direct).0
    };
    assert_eq!(cost(200_000, None), 200_000 * 1_000_000 + 10_000_000);
    assert_eq!(cost(200_001, None), 200_001 * 2_000_000 + 15_000_000);
    assert_eq!(cost(400_001, None), 400_001 * 3_000_000 + 10_000_000);
    assert_eq!(cost(2, Some("priority")), 2 * 5_000_000 + 10_000_000);
    assert_eq!(cost(2, Some("default")), 2 * 1_000_000 + 10_000_000);
    assert_eq!(cost(300_000, Some("priority")), 300_000 * 7_000_000 + 10_000_000);
    let most = prices.at_most(300_000, 1, NOW, PriceMode::Direct).0;
    assert!(most >= cost(300_000, Some("priority")) && most >= cost(300_000, None));
}

#[test]
fn a_change_of_price_is_known_beforehand() {
    let prices = prices(json!({ "input": 3, "output": 0, "rates": [
        { "from": "2026-12-01", "until": "2027-01-01T12:00:00Z", "input": 2, "output": 0 },
        { "until": "2026-01-01", "input": 4, "output": 0 },
        { "from": "2027-01-01T13:00:00+01:00", "input": 1, "output": 0 },
    ] }));
    for (at, dollars) in [
        ("2025-12-31T23:59:59.999999Z", 4),
        ("2026-01-01T00:00:00Z", 3),
        ("2026-11-30T23:59:59.999999Z", 3),
        ("2026-12-01T00:00:00Z", 2),
        ("2027-01-01T11:59:59Z", 2),
        ("2027-01-01T12:00:00Z", 1),
    ] {
        assert_eq!(prices.at(time(at)).input, Price::dollars(dollars), "{at}");
    }
    let kept: Prices = serde_json::from_value(serde_json::to_value(&prices).unwrap()).unwrap();
    assert_eq!(kept, prices);
}

#[test]
fn prices_that_make_no_sense_are_refused_and_say_why() {
    let rates = |rates: Value| json!({ "input": 1, "output": 1, "rates": rates });
    let tiers = |tiers: Value| json!({ "input": 1, "output": 1, "tiers": tiers });
    for (written, why) in [
        (json!({ "input": 1 }), "need `input` and `output`"),
        (json!({ "cache_read": 1 }), "need `input` and `output`"),
        (json!({ "input": -1, "output": 1 }), "is no price"),
        (json!({ "input": 0.000_000_1, "output": 1 }), "more than six decimals"),
        (json!({ "input": true, "output": 1 }), "dollars per million tokens"),
        (json!({ "inptu": 1, "output": 1 }), "unknown field `inptu`"),
        (json!({ "input": 1, "output": 1, "batch": 1.5 }), "from 0 to 1"),
        (json!({ "input": 1, "output": 1, "batch": 1, "batch_input": 1 }), "exclude each other"),
        (json!({ "input": 1, "output": 1, "from": "2026-01-01" }), "belong into `rates`"),
        (tiers(json!([{ "input": 2 }])), "a tier needs"),
        (tiers(json!([{ "above": 1 }, { "above": 1, "input": 2 }])), "for the same calls"),
        (tiers(json!([{ "above": 1, "imput": 2 }])), "unknown field `imput`"),
        (rates(json!([{ "input": 1, "output": 1 }])), "needs `from` or `until`"),
        (rates(json!([{ "from": "2026-01-01", "input": 1 }])), "need `input` and `output`"),
        (rates(json!([{ "from": "soon", "input": 1, "output": 1 }])), "is neither a day"),
        (
            rates(json!([{ "from": "2026-02-01", "until": "2026-02-01", "input": 1, "output": 1 }])),
            "before it begins",
        ),
        (
            rates(json!([
                { "from": "2026-01-01", "input": 1, "output": 1 },
                { "from": "2026-02-01", "input": 1, "output": 1 },
            ])),
            "two rates hold at 2026-02-01",
        ),
        (
            rates(json!([
                { "until": "2026-01-01", "input": 1, "output": 1 },
                { "until": "2026-02-01", "input": 1, "output": 1 },
            ])),
            "two rates hold",
        ),
    ] {
        let error = refused(written.clone());
        assert!(error.contains(why), "{written}: {error}");
    }
}

fn any_price() -> impl Strategy<Value = Price> {
    (0_u64..=1_000_000_000_000)
        .prop_map(|picos| format!("{}.{:06}", picos / 1_000_000, picos % 1_000_000).parse().unwrap())
}

fn any_rate() -> impl Strategy<Value = Rate> {
    let optional = || proptest::option::of(any_price());
    (any_price(), any_price(), optional(), optional(), optional()).prop_map(
        |(input, output, cache_read, cache_write, cache_write_long)| Rate {
            cache_read,
            cache_write,
            cache_write_long,
            ..Rate::flat(input, output)
        },
    )
}

fn any_answer() -> impl Strategy<Value = Answer> {
    let few = || 0_u64..10_000;
    (few(), few(), few(), few(), few()).prop_map(|(plain, out, read, write, long)| Answer {
        tokens_in: plain + read + write + long,
        tokens_out: out,
        tokens_cached: read,
        tokens_cache_write: write,
        tokens_cache_write_long: long,
        ..Answer::default()
    })
}

fn sum(a: &Answer, b: &Answer) -> Answer {
    Answer {
        tokens_in: a.tokens_in + b.tokens_in,
        tokens_out: a.tokens_out + b.tokens_out,
        tokens_cached: a.tokens_cached + b.tokens_cached,
        tokens_cache_write: a.tokens_cache_write + b.tokens_cache_write,
        tokens_cache_write_long: a.tokens_cache_write_long + b.tokens_cache_write_long,
        ..Answer::default()
    }
}

proptest! {
    #[test]
    fn the_whole_costs_what_its_parts_cost(rate in any_rate(), a in any_answer(), b in any_answer()) {
        let cost = |answer: &Answer| rate.cost(answer, PriceMode::Direct);
        prop_assert_eq!(cost(&sum(&a, &b)), cost(&a) + cost(&b));
        prop_assert!(cost(&sum(&a, &b)) >= cost(&a), "more tokens never cost less");
    }

    #[test]
    fn half_a_price_is_half_the_cost_and_the_reservation_covers_it(
        rate in any_rate(), answer in any_answer(), above in 0_u64..20_000, dear in any_price(),
    ) {
        let tier = Tier { above: Some(above), input: Some(dear), ..Tier::default() };
        let rate = Rate { batch: Some(PriceShare::HALF), tiers: vec![tier], ..rate };
        let whole = rate.cost(&answer, PriceMode::Direct).0;
        prop_assert_eq!(rate.cost(&answer, PriceMode::Batch).0, (whole + 1) / 2);
        let most = rate.at_most(answer.tokens_in, answer.tokens_out, PriceMode::Direct).0;
        prop_assert!(most >= whole);
    }

    #[test]
    fn no_number_of_tokens_overflows(
        rate in any_rate(), parts in proptest::array::uniform5(proptest::num::u64::ANY),
    ) {
        let [tokens_in, tokens_out, tokens_cached, tokens_cache_write, tokens_cache_write_long] = parts;
        let answer = Answer {
            tokens_in, tokens_out, tokens_cached, tokens_cache_write, tokens_cache_write_long,
            ..Answer::default()
        };
        let rate = Rate { batch: Some(PriceShare::HALF), ..rate };
        prop_assert!(rate.cost(&answer, PriceMode::Direct) >= rate.cost(&answer, PriceMode::Batch));
        prop_assert!(rate.cost(&answer, PriceMode::Batch) >= Cost(0));
    }
}

#[test]
fn the_shipped_table_is_valid_and_every_price_in_it_is_above_zero() {
    let table = PriceTable::shipped();
    for provider in [ProviderName::Anthropic, ProviderName::Openai, ProviderName::Gemini] {
        let models = &table.models[&provider];
        assert!(models.len() > 10, "{provider}");
        assert!(table.sources[provider.as_str()].starts_with("https://"));
        for (model, prices) in models {
            let rate = prices.default_rate();
            assert!(rate.input > Price::default() && rate.output > rate.input, "{model}");
            assert!(rate.cache_read.is_some_and(|read| read < rate.input), "{model}");
        }
    }
    let haiku = table.prices(ProviderName::Anthropic, "claude-haiku-5-5").unwrap();
    assert_eq!(haiku.cost(&tokens(100_000, 1), NOW, PriceMode::Direct), Cost(10_000_500_000));
    assert_eq!(haiku.cost(&tokens(100_001, 1), NOW, PriceMode::Direct), Cost(50_000_500_000 + 2_500_000));
}

fn table(date: &str, models: &str) -> PriceTable {
    PriceTable::parse(&format!("date = '{date}'\n[models.openai]\n{models}")).unwrap()
}

#[test]
fn of_two_tables_the_newer_one_counts_and_what_only_one_has_stays() {
    let old = table("2026-01-01", "a = { input = 1, output = 1 }\nb = { input = 1, output = 1 }");
    let new = table("2026-02-01", "b = { input = 2, output = 2 }\nc = { input = 2, output = 2 }");
    for merged in [old.clone().merged(new.clone()), new.merged(old)] {
        let input = |model: &str| merged.prices(ProviderName::Openai, model).unwrap().default_rate().input;
        assert_eq!(["a", "b", "c"].map(input), [1, 2, 2].map(Price::dollars));
        assert_eq!(merged.date, "2026-02-01");
    }
}

#[test]
fn a_table_says_when_it_is_old() {
    let table = table("2026-01-01", "");
    assert_eq!(table.old_age(time("2026-06-30T00:00:00Z")), None);
    let age = table.old_age(time("2026-07-01T00:00:00Z")).unwrap();
    assert_eq!(age.as_secs() / (24 * 3600), 181);
}

#[test]
fn a_table_that_is_invalid_says_why() {
    for (toml, why) in [
        ("[models]", "missing field `date`"),
        ("date = 'soon'\n[models]", "`date` is `soon`"),
        ("date = '2026-01-01'\n[models.opnai]\nm = { input = 1, output = 1 }", "unknown variant `opnai`"),
        ("date = '2026-01-01'\n[models.openai]\nm = { input = 1 }", "need `input` and `output`"),
        ("date = '2026-01-01'\n[models.openai]\nm = {}", "model `m` of openai has no prices"),
        ("date = '2026-01-01'\nmodel = 1\n[models]", "unknown field `model`"),
    ] {
        let error = PriceTable::parse(toml).unwrap_err().to_string();
        assert!(error.contains(why), "{toml}: {error}");
    }
}

#[test]
fn a_profile_has_the_prices_of_the_table_where_it_is_billed_and_states_none() {
    let table = table("2026-01-01", "a = { input = 1, output = 1 }\nb = { input = 2, output = 2 }");
    let completed = |written: Value| {
        let mut profile: Profile = serde_json::from_value(written).unwrap();
        table.complete(&mut profile);
        move |model: &str| profile.prices_of(model).map(|prices| prices.default_rate().input)
    };
    let dollars = |dollars: u32| Some(Price::dollars(dollars));
    let plain = completed(json!({ "provider": "openai", "model": "a", "models": { "b": {} } }));
    assert_eq!(["a", "b", "c"].map(plain), [dollars(1), dollars(2), None]);
    let stated = json!({ "input": 7, "output": 7 });
    let own =
        completed(json!({ "provider": "openai", "model": "a", "prices": stated, "models": { "b": stated } }));
    assert_eq!(["a", "b"].map(own), [dollars(7), dollars(7)]);
    let free = json!({ "input": 0, "output": 0 });
    let free = completed(json!({ "provider": "openai", "model": "a", "prices": free }));
    assert_eq!(free("a"), dollars(0), "zero is a price");
    let elsewhere = completed(json!({ "provider": "openai", "model": "a", "endpoint": "http://x" }));
    assert_eq!(elsewhere("a"), dollars(0), "another server has its own prices");
    let any = completed(json!({ "provider": "openai", "model": "a", "models": { "*": {} } }));
    assert_eq!(["a", "b", "c", "*"].map(any), [dollars(1), dollars(2), None, None], "at a known price");
    let at_price = completed(json!({ "provider": "openai", "model": "a", "models": { "*": stated } }));
    assert_eq!(["a", "c"].map(at_price), [dollars(1), dollars(7)]);
    let local = completed(json!({ "provider": "ollama", "model": "a", "models": { "*": {} } }));
    assert_eq!(["a", "c"].map(local), [dollars(0), dollars(0)]);
}

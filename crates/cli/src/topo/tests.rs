//! Pictures of fabrics and machines made by hand.

#[test]
fn look() {
    for (name, (fabric, found)) in [
        ("8x8", super::sample::rails(1, 8, 8, 4)),
        ("faulty", super::sample::faulty()),
        ("big", super::sample::rails(16, 32, 8, 16)),
    ] {
        println!("{}", super::text::fabric(&fabric, &found));
        std::fs::write(format!("/tmp/cli-{name}.svg"), super::svg::fabric(&fabric, &found))
            .unwrap();
    }
}

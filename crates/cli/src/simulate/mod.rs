//! `ringfold simulate`: the time of a call on a fabric that need not exist.
//!
//! * `question`: the arguments; `cell`: one call by one algorithm; `bar`: the progress;
//! * `answer`: all calls on a fabric, as `text`, as `json`, and as `svg` with `plot` and `heat`.

mod answer;
mod bar;
mod cell;
mod heat;
mod json;
mod plot;
mod question;
mod svg;
mod text;

use std::path::Path;

use anyhow::ensure;

use crate::new_file::NewFile;
use answer::Answer;
use bar::Bar;
pub(crate) use question::Args;

/// Returns the answer as text.
pub(crate) fn answer(args: &Args) -> anyhow::Result<String> {
    let questions = args.questions()?;
    let new_file = |path: &String| {
        let is_there = Path::new(path).exists();
        ensure!(!is_there, "--svg {path}: it exists; remove it, or give another name");
        NewFile::create("--svg", path)
    };
    let picture = args.svg.as_ref().map(new_file).transpose()?;
    let bar = Bar::new();
    let answers = questions.into_iter().map(|it| Answer::of(it, &bar));
    let answers: Vec<Answer> = answers.collect::<anyhow::Result<_>>()?;
    drop(bar);
    if let Some(file) = picture {
        file.finish(&plot::picture(&answers))?;
    }
    if args.json {
        return json::answer(&answers);
    }
    let texts: Vec<String> = answers.iter().map(text::answer).collect::<anyhow::Result<_>>()?;
    Ok(texts.join("\n"))
}

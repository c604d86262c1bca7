//! `plimsoll completions` and `plimsoll man`: the command line, for shells and for `man`.

use crate::{Cli, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use plimsoll::WholeFile;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// Print a script that completes this command's arguments in a shell
///
/// For bash: plimsoll completions bash > ~/.local/share/bash-completion/completions/plimsoll
#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Print the manual page, or write one for each command into a folder
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// The folder, such as ~/.local/share/man/man1
    folder: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs, out: &mut dyn Write) -> Result {
    // In memory first: the generator panics where nobody reads its output.
    let mut script = vec![];
    clap_complete::generate(args.shell, &mut Cli::command(), "plimsoll", &mut script);
    Ok(out.write_all(&script)?)
}

pub(crate) fn man(args: &ManArgs, out: &mut dyn Write) -> Result {
    let mut all = Cli::command();
    all.build();
    let page = |command: clap::Command| -> Result<Vec<u8>> {
        let mut page = vec![];
        Man::new(command).render(&mut page)?;
        Ok(page)
    };
    let Some(folder) = &args.folder else { return Ok(out.write_all(&page(all)?)?) };
    fs::create_dir_all(folder)
        .map_err(|error| format!("cannot make the folder {}: {error}", folder.display()))?;
    let commands = all.get_subcommands().filter(|command| command.get_name() != "help");
    let mut written = vec![];
    for command in [&all].into_iter().chain(commands) {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let (path, command) = (folder.join(format!("{name}.1")), command.clone());
        WholeFile::save(&path, &page(command)?)?;
        written.push(path);
    }
    // All of them are there before anybody is told, who may have heard enough.
    Ok(written.iter().try_for_each(|path| writeln!(out, "{:<10} {}", "written", path.display()))?)
}

// Command manual writes manual pages, and completion for bash, zsh and fish, of commands:
//
//	go build -o bin/ ./cmd/...
//	go run ./internal/manual share bin/*
//
// It runs each with --help, and each of its subcommands, and takes flags and texts from what they
// print. So these are those of the binaries that it is given. Below the directory it writes
//
//	man/man1/NAME.1
//	bash-completion/completions/NAME
//	zsh/site-functions/_NAME
//	fish/vendor_completions.d/NAME.fish
//
// which are the places of the four below /usr/share.
package main

package flags

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/pflag"
)

// wants says, by the type of a flag, what its value must be.
var wants = map[string]string{
	"int":      "a whole number",
	"uint64":   "a whole number, not negative",
	"duration": "a time with its unit, as in 300ms or 2s",
	"bool":     "true or false",
	"SIZE":     "bytes, as in 65536, 64K or 1M",
}

// New returns the flag set of a command. Its help, which stdout gets, is head, the flags in their order, and tail.
func New(name string, stdout io.Writer, head, tail string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard) // the command prints its errors
	fs.SortFlags = false
	fs.Usage = func() { fmt.Fprint(stdout, head, fs.FlagUsagesWrapped(80), tail) }
	return fs
}

// Parse parses args. A value that is not of the flag's type gives an error that says what
// is wanted. Other errors are those of pflag. Parse adds a flag, --version. Where args have it,
// Parse prints the program's version to stdout, and returns pflag.ErrHelp as it does after the help.
// A single argument "help" or "version" is the same as the flag.
func Parse(fs *pflag.FlagSet, args []string, stdout io.Writer) error {
	wantsVersion := fs.Bool("version", false, "print the version")
	if len(args) == 1 && (args[0] == "help" || args[0] == "version") {
		args = []string{"--" + args[0]}
	}
	err := fs.Parse(args)
	if err == nil && *wantsVersion {
		info, ok := debug.ReadBuildInfo()
		if !ok {
			return errors.New("the program was built without modules, so its version is unknown")
		}
		if _, err = io.WriteString(stdout, version(fs.Name(), info)); err == nil {
			err = pflag.ErrHelp
		}
	}
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	want, ok := wants[bad.GetFlag().Value.Type()]
	if !ok {
		return err
	}
	return fmt.Errorf("%s %q: want %s", name(bad.GetFlag()), bad.GetValue(), want)
}

// Status returns the exit status of a command for the error of its flags: 0 for pflag.ErrHelp, and else 2, behind a line
// that says what is wrong.
func Status(name string, err error, stderr io.Writer) int {
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(stderr, "%s: %v (%[1]s --help tells more)\n", name, err)
	return 2
}

// name returns a flag as a user writes it.
func name(f *pflag.Flag) string {
	if len(f.Name) == 1 {
		return "-" + f.Name
	}
	return "--" + f.Name
}

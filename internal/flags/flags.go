package flags

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// wants says, by the type of a flag, what its value must be.
var wants = map[string]string{
	"int":      "a whole number",
	"uint64":   "a whole number, not negative",
	"duration": "a time with its unit, as in 300ms or 2s",
	"bool":     "true or false",
}

// Parse parses args. A value that is not of the flag's type gives an error that says what
// is wanted. Other errors are those of pflag.
func Parse(fs *pflag.FlagSet, args []string) error {
	err := fs.Parse(args)
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

// name returns a flag as a user writes it.
func name(f *pflag.Flag) string {
	if len(f.Name) == 1 {
		return "-" + f.Name
	}
	return "--" + f.Name
}

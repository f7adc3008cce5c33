package proxy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Option is a setting of a [Config] or of a [Map]. A file has it as a key, and the command line as a flag, by the same
// name and with the same values.
type Option[T any] struct {
	Name    string
	Usage   string // a line, with the name of the value in backquotes
	Default string // "" for none
	Bool    bool   // it is true or false
	List    bool   // it takes several values

	set func(to *T, values []string) error
}

// Set sets the option. The error says what is wanted, not the option's name.
func (o *Option[T]) Set(to *T, values ...string) error { return o.set(to, values) }

func durationOption[T any](name, def, usage string, field func(*T) *time.Duration) Option[T] {
	return Option[T]{Name: name, Usage: usage, Default: def, set: func(to *T, values []string) error {
		d, err := time.ParseDuration(values[0])
		if err != nil {
			return fmt.Errorf("%q: want a time with its unit, as in 300ms or 2s", values[0])
		}
		if d < 0 {
			return fmt.Errorf("%v: cannot be negative", d)
		}
		*field(to) = d
		return nil
	}}
}

func countOption[T any](name, def, usage string, field func(*T) *int) Option[T] {
	return Option[T]{Name: name, Usage: usage, Default: def, set: func(to *T, values []string) error {
		n, err := strconv.ParseInt(values[0], 10, 32)
		if err != nil {
			return fmt.Errorf("%q: want a whole number", values[0])
		}
		if n < 0 {
			return fmt.Errorf("%d: cannot be negative", n)
		}
		*field(to) = int(n)
		return nil
	}}
}

// wordOption is an option that is one of several words. The first one is the default.
func wordOption[T any](name, usage string, words []string, field func(*T) *string) Option[T] {
	return Option[T]{Name: name, Usage: usage, Default: words[0], set: func(to *T, values []string) error {
		if !slices.Contains(words, values[0]) {
			return fmt.Errorf("%q: want %s", values[0], strings.Join(words, " or "))
		}
		*field(to) = values[0]
		return nil
	}}
}

func boolOption[T any](name, usage string, field func(*T) *bool) Option[T] {
	return Option[T]{Name: name, Usage: usage, Bool: true, set: func(to *T, values []string) error {
		switch values[0] {
		case "true":
			*field(to) = true
		case "false":
			*field(to) = false
		default:
			return fmt.Errorf("%q: want true or false", values[0])
		}
		return nil
	}}
}

// listOption is an option with one or more values, each of which set gets with those before it. A list without values is
// an error: it could be taken for everybody or for nobody.
func listOption[T any](name, usage string, set func(to *T, values []string) error) Option[T] {
	return Option[T]{Name: name, Usage: usage, List: true, set: func(to *T, values []string) error {
		if len(values) == 0 {
			return errors.New("is an empty list; give it a value, or leave it out")
		}
		for _, v := range values {
			if strings.TrimSpace(v) == "" {
				return fmt.Errorf("%q: want a name or number", v)
			}
		}
		return set(to, values)
	}}
}

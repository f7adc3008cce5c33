package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/metrics"
	"go.yaml.in/yaml/v3"
)

// Config is what a proxy serves, as a file or the command line says it.
type Config struct {
	Maps         []Map
	Own          bool          // own the links of this node of the fabric
	DrainTimeout time.Duration // how long connections have to end when a map or the proxy ends
	Log          string        // format of the log, "text" or "json"
	Metrics      string        // where operators are served, see package metrics; "" for nowhere
	Quiet        bool          // log only what went wrong
	Stats        bool          // log the counters at the end

	// Defaults has what maps have that do not say otherwise.
	Defaults Map
}

// NewConfig returns a Config without maps, with all options at their defaults.
func NewConfig() *Config {
	c := new(Config)
	for _, o := range Options {
		mustSet(o, c)
	}
	for _, o := range MapOptions {
		mustSet(o, &c.Defaults)
	}
	return c
}

func mustSet[T any](o Option[T], to *T) {
	if o.Default == "" {
		return
	}
	if err := o.Set(to, o.Default); err != nil {
		panic(o.Name + " " + err.Error()) // a default of this package
	}
}

// Options are those of a [Config].
var Options = []Option[Config]{
	boolOption("own", "own the links of this node of the fabric, for the node's other processes; needs no map", func(c *Config) *bool { return &c.Own }),
	durationOption("drain-timeout", "30s", "after SIGTERM, and of a map that is changed or removed, cut what has not ended after `TIME`", func(c *Config) *time.Duration { return &c.DrainTimeout }),
	wordOption("log", "`FORMAT` of what is written on stderr: text or json", []string{"text", "json"}, func(c *Config) *string { return &c.Log }),
	{Name: "metrics", Usage: "serve /metrics, /healthz, /readyz and /connections at `ADDRESS`, a port of loopback or unix:/PATH, as in 127.0.0.1:9478", set: func(c *Config, values []string) error {
		c.Metrics = values[0]
		return metrics.CheckAddress(c.Metrics)
	}},
	boolOption("stats", "print the counters at the end", func(c *Config) *bool { return &c.Stats }),
	boolOption("quiet", "write only what went wrong", func(c *Config) *bool { return &c.Quiet }),
}

// Check returns an error that says what is missing, or which map listens where another one does.
func (c *Config) Check() error {
	if len(c.Maps) == 0 && !c.Own {
		return errors.New("nothing to do: want a map, or own")
	}
	listens := map[Endpoint]bool{}
	for _, m := range c.Maps {
		for _, network := range m.Listen.networks() {
			at := m.Listen.half(network)
			if listens[at] && !at.picks() {
				return fmt.Errorf("two maps listen on %v; give one of them another address", at)
			}
			listens[at] = true
		}
	}
	return nil
}

// ReadFile reads a Config from a file. The error is one line that begins with the path, and where it is about what
// is in the file, with the line and the column.
func ReadFile(path string) (*Config, error) {
	text, err := flags.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseConfig(path, []byte(text))
}

// parseConfig is ReadFile for a text.
func parseConfig(path string, text []byte) (*Config, error) {
	d := document(path)
	var root, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	switch err := decoder.Decode(&root); {
	case err == io.EOF:
		return nil, d.fail(&yaml.Node{Line: 1, Column: 1}, "nothing is in it: want maps")
	case err != nil:
		return nil, d.syntax(text, err)
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, d.fail(&more, "want one document")
	} else if err != io.EOF {
		return nil, d.syntax(text, err)
	}
	c := NewConfig()
	if err := d.config(c, root.Content[0]); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, d.fail(root.Content[0], "%v", err)
	}
	return c, nil
}

// document is the path of a file. Its methods parse parts of the file, with errors that have line and column.
type document string

// fail returns the error about a node.
func (d document) fail(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d:%d: %s", string(d), n.Line, n.Column, fmt.Sprintf(format, args...))
}

var syntaxLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)

// syntax returns the error about a text that is not YAML. The parser has only the line, so the column is that of the
// line's first letter.
func (d document) syntax(text []byte, err error) error {
	message := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
	at := &yaml.Node{Line: 1, Column: 1}
	if m := syntaxLine.FindStringSubmatch(message); m != nil {
		at.Line, _ = strconv.Atoi(m[1])
		message = m[2]
		if lines := bytes.Split(text, []byte("\n")); at.Line >= 1 && at.Line <= len(lines) {
			line := lines[at.Line-1]
			at.Column = 1 + len(line) - len(bytes.TrimLeft(line, " \t"))
		}
	}
	return d.fail(at, "%s", message)
}

// fields calls what is set for each key of a mapping. Unknown keys, and keys that are there twice, are errors.
func (d document) fields(n *yaml.Node, what string, set map[string]func(value *yaml.Node) error) error {
	n = target(n)
	if n.Kind != yaml.MappingNode {
		return d.fail(n, "want %s, as keys with values", what)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		f := set[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || f == nil:
			return d.fail(key, "unknown key %q of %s", key.Value, what)
		case seen[key.Value]:
			return d.fail(key, "%s is there twice", key.Value)
		}
		seen[key.Value] = true
		if err := f(n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// target follows an alias.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// each calls f for the elements of a list.
func (d document) each(n *yaml.Node, what string, f func(*yaml.Node) error) error {
	n = target(n)
	if n.Kind != yaml.SequenceNode {
		return d.fail(n, "want a list of %s", what)
	}
	for _, e := range n.Content {
		if err := f(target(e)); err != nil {
			return err
		}
	}
	return nil
}

// scalar returns the text of a value.
func (d document) scalar(n *yaml.Node, what string) (string, error) {
	n = target(n)
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return "", d.fail(n, "want %s", what)
	}
	return n.Value, nil
}

// options adds what sets the options of to.
func addOptions[T any](d document, set map[string]func(*yaml.Node) error, options []Option[T], to *T) {
	for _, o := range options {
		set[o.Name] = func(n *yaml.Node) error {
			var values []string
			add := func(n *yaml.Node) error {
				v, err := d.scalar(n, "a value of "+o.Name)
				values = append(values, v)
				return err
			}
			var err error
			if n = target(n); o.List && n.Kind == yaml.SequenceNode {
				err = d.each(n, "values", add)
			} else {
				err = add(n)
			}
			if err != nil {
				return err
			}
			if err := o.Set(to, values...); err != nil {
				return d.fail(n, "%s %v", o.Name, err)
			}
			return nil
		}
	}
}

// config parses a file's root.
func (d document) config(c *Config, n *yaml.Node) error {
	var list *yaml.Node // parsed last, when the defaults are known
	set := map[string]func(*yaml.Node) error{
		"maps": func(n *yaml.Node) error { list = n; return nil },
		"defaults": func(n *yaml.Node) error {
			set := map[string]func(*yaml.Node) error{}
			addOptions(d, set, MapOptions, &c.Defaults)
			return d.fields(n, "defaults", set)
		},
	}
	addOptions(d, set, Options, c)
	if err := d.fields(n, "the file", set); err != nil || list == nil {
		return err
	}
	return d.each(list, "maps", func(n *yaml.Node) error {
		m := c.Defaults
		if err := d.oneMap(&m, n); err != nil {
			return err
		}
		c.Maps = append(c.Maps, m)
		return nil
	})
}

// oneMap parses a map.
func (d document) oneMap(m *Map, n *yaml.Node) error {
	endpoint := func(to func(Endpoint), minPort int) func(*yaml.Node) error {
		return func(n *yaml.Node) error {
			text, err := d.scalar(n, "an address, as in tcp://127.0.0.1:6379")
			if err != nil {
				return err
			}
			e, err := parseEndpoint(text, minPort)
			if err != nil {
				return d.fail(target(n), "%v", err)
			}
			to(e)
			return nil
		}
	}
	addTarget := endpoint(func(e Endpoint) { m.Targets = append(m.Targets, e) }, 1)
	set := map[string]func(*yaml.Node) error{
		"listen":  endpoint(func(e Endpoint) { m.Listen = e }, 0),
		"target":  addTarget,
		"targets": func(n *yaml.Node) error { return d.each(n, "targets", addTarget) },
	}
	addOptions(d, set, MapOptions, m)
	if err := d.fields(n, "a map", set); err != nil {
		return err
	}
	if err := m.check(); err != nil {
		return d.fail(n, "%v", err)
	}
	return nil
}

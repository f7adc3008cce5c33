package spec

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// EnvFabric is the environment variable that names the fabric of a process that
// does not choose one.
const EnvFabric = "SDP_FABRIC"

// File says the fabric of all processes of the machine that do not choose one, and have no [EnvFabric]. It is root's.
// Lines are empty, or begin with #, or have a key and a value. The first key is fabric, with KIND:NAME. The others are
// options of that fabric.
const File = "/etc/ntbnet/fabric"

// maxFile is how large the file may be, in bytes.
const maxFile = 64 << 10

// Default returns the fabric of a process that names none, and what says so: EnvFabric, if it is set, even to "", or
// else File; "" if neither does. The fabric is then the user's own on this machine. An error about what the file has in
// it begins with path, line and column.
func Default() (text, from string, err error) { return defaultIn(File, 0) }

// defaultIn is Default with the file at path, which a user owns.
func defaultIn(path string, owner int) (text, from string, err error) {
	text, set := os.LookupEnv(EnvFabric)
	if set {
		from = EnvFabric
	} else if text, err = readFile(path, owner); text != "" {
		from = path
	}
	if text == "" && err == nil {
		text = OneHost(DefaultName)
	}
	return text, from, err
}

// readFile returns the text of the spec that the file says; "" if there is no file, or nothing in it.
func readFile(path string, owner int) (string, error) {
	text, err := readOwned(path, owner)
	if err != nil {
		return "", fmt.Errorf("fabric: %s %w", path, err)
	}
	return parseFile(path, text)
}

// parseFile is readFile for a text.
func parseFile(path, text string) (string, error) {
	p := fileParser{path: path}
	for line := range strings.Lines(text) {
		p.line++
		if err := p.parse(strings.TrimSuffix(line, "\n")); err != nil {
			return "", err
		}
	}
	if p.spec == nil {
		return "", nil
	}
	if err := p.spec.complete(); err != nil {
		p.line = p.begun.line
		return "", p.fail(p.begun.column, "%v", err)
	}
	if p.spec.IsOwner() && !p.spec.OfBridge() && p.spec.Backend != "mem" && !p.seen["share"] {
		p.add("share", "1") // it is for several processes
	}
	return p.text.String(), nil
}

// fileParser makes the text of a spec of the lines of a file.
type fileParser struct {
	path string
	line int // from 1 on

	spec  *Spec                      // nil until the fabric is named
	begun struct{ line, column int } // where it is named
	seen  map[string]bool            // options
	text  strings.Builder
}

// fail returns the error about a byte of the line, from 1 on.
func (p *fileParser) fail(column int, format string, args ...any) error {
	return fmt.Errorf("%s:%d:%d: %w: %w", p.path, p.line, column, fmt.Errorf(format, args...), syscall.EINVAL)
}

const blanks = " \t"

// parse parses a line.
func (p *fileParser) parse(line string) error {
	if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }); i >= 0 {
		return p.fail(i+1, "%q is no character of a line", line[i])
	}
	rest := strings.TrimLeft(line, blanks)
	if rest == "" || rest[0] == '#' {
		return nil
	}
	atKey := len(line) - len(rest) + 1
	rest = strings.TrimRight(rest, blanks)
	end := strings.IndexAny(rest, blanks)
	if end < 0 {
		return p.fail(atKey+len(rest), "want a value behind %.32q, with a blank between", rest)
	}
	key, value := rest[:end], strings.TrimLeft(rest[end:], blanks)
	atValue := atKey + len(rest) - len(value)
	if key == "fabric" {
		return p.begin(atKey, atValue, value)
	}
	at := atValue
	if _, _, ok := findOption(key); !ok {
		at = atKey
	}
	switch {
	case p.spec == nil:
		return p.fail(atKey, "want fabric KIND:NAME before all options, as in fabric ring:/run/ntbnet/lab")
	case p.seen[key]:
		return p.fail(atKey, "%s is there twice", key)
	}
	if err := p.spec.set(key, value); err != nil {
		return p.fail(at, "%.32s: %v", key, err)
	}
	p.add(key, value)
	return nil
}

// begin begins the spec.
func (p *fileParser) begin(atKey, atValue int, name string) (err error) {
	if p.spec != nil {
		return p.fail(atKey, "fabric is there twice")
	}
	if i := strings.IndexByte(name, '?'); i >= 0 {
		return p.fail(atValue+i, "options have lines of their own, as in node 1")
	}
	if p.spec, err = parseName(name); err != nil {
		return fmt.Errorf("%s:%d:%d: %w", p.path, p.line, atValue, err)
	}
	p.begun.line, p.begun.column, p.seen = p.line, atValue, make(map[string]bool)
	p.text.WriteString(name)
	return nil
}

// escape writes a value as url.ParseQuery reads it, and leaves as much as possible as it is, for messages.
var escape = strings.NewReplacer("%", "%25", "&", "%26", "+", "%2B", ";", "%3B")

// add adds an option to the text.
func (p *fileParser) add(key, value string) {
	separator := "?"
	if len(p.seen) > 0 {
		separator = "&"
	}
	p.seen[key] = true
	p.text.WriteString(separator + key + "=" + escape.Replace(value))
}

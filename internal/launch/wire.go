package launch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// PMI-1 is a conversation in lines of text. This side sends requests and the launcher answers, one
// line each:
//
//	cmd=init pmi_version=1 pmi_subversion=1  cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//	cmd=get_maxes                            cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024
//	cmd=get_my_kvsname                       cmd=my_kvsname kvsname=NAME
//	cmd=put kvsname=NAME key=K value=V       cmd=put_result rc=0 msg=success
//	cmd=get kvsname=NAME key=K               cmd=get_result rc=0 msg=success value=V
//	cmd=barrier_in                           cmd=barrier_out    when all have sent it
//	cmd=finalize                             cmd=finalize_ack
//	cmd=abort exitcode=N                     nothing: the launcher ends all processes
//
// A line consists of fields NAME=VALUE with spaces between them. So values have no spaces. Fields
// of an answer may come in any order.

// maxLine is the longest line, in bytes, with its end.
const maxLine = 64 << 10

// field is one part of a line.
type field struct{ name, value string }

// message is a line.
type message []field

// parse parses a line, without its end. It accepts no line that could be read in
// two ways: a field without '=', without a name, or twice.
func parse(line string) (message, error) {
	if len(line) >= maxLine {
		return nil, fmt.Errorf("a line of %d bytes, want less than %d", len(line), maxLine)
	}
	var m message
	for word := range strings.SplitSeq(line, " ") {
		if word == "" {
			continue
		}
		name, value, ok := strings.Cut(word, "=")
		switch {
		case !ok || name == "":
			return nil, fmt.Errorf("%.40q is not NAME=VALUE", word)
		case strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return nil, fmt.Errorf("%.40q has a control character", word)
		case m.has(name):
			return nil, fmt.Errorf("%.40q is there twice", name)
		}
		m = append(m, field{name, value})
	}
	if m.get("cmd") == "" {
		return nil, errors.New("no cmd= in the line")
	}
	return m, nil
}

func (m message) has(name string) bool {
	return slices.ContainsFunc(m, func(f field) bool { return f.name == name })
}

// get returns the value of a field, or "" if it is missing.
func (m message) get(name string) string {
	for _, f := range m {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// String returns the line, without its end.
func (m message) String() string {
	var b strings.Builder
	for i, f := range m {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(f.name + "=" + f.value)
	}
	return b.String()
}

// checkWord refuses a string that cannot be a key or value of at most limit bytes.
// It also refuses '=', because not every launcher leaves it in a value.
func checkWord(what, s string, limit int) error {
	bad := strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '=' })
	switch {
	case s == "":
		return fmt.Errorf("an empty %s", what)
	case len(s) > limit:
		return fmt.Errorf("a %s of %d bytes: the launcher takes %d", what, len(s), limit)
	case bad >= 0:
		return fmt.Errorf("%s %.40q: want printable ASCII without space and '='", what, s)
	}
	return nil
}

package launch

import (
	"errors"
	"fmt"
	"strings"
)

// PMI-1 is a conversation in lines of text. This side sends requests and the launcher answers, one
// line each:
//
//	cmd=init pmi_version=1 pmi_subversion=1  cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//	cmd=get_my_kvsname                       cmd=my_kvsname kvsname=NAME
//	cmd=finalize                             cmd=finalize_ack
//	cmd=abort exitcode=N                     nothing: the launcher ends all processes
//
// A line consists of fields NAME=VALUE with spaces between them. So values have no spaces. Fields
// of an answer may come in any order.

// maxLine is the longest line, in bytes, with its end.
const maxLine = 64 << 10

// parse returns the fields of a line, which has no end. It accepts no line that could be read in
// two ways: a field without '=', without a name, or twice.
func parse(line string) (map[string]string, error) {
	if len(line) >= maxLine {
		return nil, fmt.Errorf("a line of %d bytes, want less than %d", len(line), maxLine)
	}
	fields := map[string]string{}
	for word := range strings.SplitSeq(line, " ") {
		if word == "" {
			continue
		}
		name, value, ok := strings.Cut(word, "=")
		switch _, twice := fields[name]; {
		case !ok || name == "":
			return nil, fmt.Errorf("%.40q is not NAME=VALUE", word)
		case strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return nil, fmt.Errorf("%.40q has a control character", word)
		case twice:
			return nil, fmt.Errorf("%.40q is there twice", name)
		}
		fields[name] = value
	}
	if fields["cmd"] == "" {
		return nil, errors.New("no cmd= in the line")
	}
	return fields, nil
}

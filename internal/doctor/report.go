package doctor

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
)

// Status is the outcome of a check.
type Status string

const (
	OK      Status = "ok"
	Warning Status = "warning" // it works, but for something
	Error   Status = "error"   // a dial or a listen would fail
)

// Check is one thing that was found out.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"` // a command or a sentence, unless the status is OK
}

// Report is the outcome of Run.
type Report struct {
	Fabric string              `json:"fabric"`
	Works  bool                `json:"works"` // a dial and a listen do
	Checks []Check             `json:"checks"`
	Hosts  []*status.Directory `json:"hosts"` // who is in the fabric
}

func (r *Report) ok(name, format string, args ...any) {
	r.Checks = append(r.Checks, Check{name, OK, fmt.Sprintf(format, args...), ""})
}

func (r *Report) warn(name, remedy, format string, args ...any) {
	r.Checks = append(r.Checks, Check{name, Warning, fmt.Sprintf(format, args...), remedy})
}

func (r *Report) fail(name, remedy, format string, args ...any) {
	r.Checks = append(r.Checks, Check{name, Error, fmt.Sprintf(format, args...), remedy})
}

// failed reports whether a check has failed.
func (r *Report) failed() bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Status == Error })
}

// remedy returns what to do against an error that has a cause of its own, and otherwise what to do
// against others.
func remedy(err error, otherwise string) string {
	words, text := spec.Remedy(err), oneLine(err.Error())
	switch {
	case words != "" && !strings.Contains(text, words):
		return words + ": " + text
	case hostdir.Lack(err):
		return text
	}
	return otherwise
}

// advice returns the words of an error of SDP, which end with what to do, without the name of
// the system's error.
func advice(err error) string {
	text := strings.TrimPrefix(strings.TrimPrefix(oneLine(remedy(err, err.Error())), "fabric: "), "ntbkernel: ")
	var errno syscall.Errno
	if errors.As(err, &errno) && !hostdir.Lack(err) {
		text = strings.TrimSuffix(text, ": "+errno.Error())
	}
	return text
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Table writes the report as text, with a line for each check, and one for each remedy.
func (r *Report) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, c := range r.Checks {
		fmt.Fprintf(w, "%s\t%s\t%s\n", c.Status, c.Name, oneLine(c.Found))
		if c.Remedy != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", oneLine(c.Remedy))
		}
	}
	if r.Works {
		fmt.Fprintln(w, "\nA dial and a listen work by SDP.")
	} else {
		fmt.Fprintln(w, "\nA dial or a listen does not work by SDP.")
	}
	return w.Flush()
}

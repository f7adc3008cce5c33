package metrics

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Writer writes metrics in Prometheus' text format. Samples follow their family.
type Writer struct {
	w    *bufio.Writer
	name string
}

// Respond calls write with a Writer of a response.
func Respond(w http.ResponseWriter, write func(*Writer)) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_ = Write(w, write) // the client has gone
}

// Write calls write with a Writer of w.
func Write(w io.Writer, write func(*Writer)) error {
	b := bufio.NewWriter(w)
	write(&Writer{w: b})
	return b.Flush()
}

// Family begins a family of samples. Kind is "counter", "gauge" or "histogram".
func (w *Writer) Family(name, kind, help string) {
	w.name = name
	fmt.Fprintf(w.w, "# HELP %s %s\n# TYPE %[1]s %[3]s\n", name, help, kind)
}

// escape is that of the format, for the value of a label.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// Sample writes a sample of the family, whose labels are names and values in turn.
func (w *Writer) Sample(value float64, labels ...string) {
	w.w.WriteString(w.name)
	for i := 0; i+1 < len(labels); i += 2 {
		w.w.WriteString(map[bool]string{true: "{", false: ","}[i == 0])
		fmt.Fprintf(w.w, `%s="%s"`, labels[i], escape.Replace(labels[i+1]))
	}
	if len(labels) > 0 {
		w.w.WriteByte('}')
	}
	w.w.WriteByte(' ')
	w.w.WriteString(strconv.FormatFloat(value, 'f', -1, 64))
	w.w.WriteByte('\n')
}

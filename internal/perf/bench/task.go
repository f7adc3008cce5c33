package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// Test names what a Task does.
type Test string

// The tests.
const (
	RoundTrip Test = "round trip" // value: µs
	OneWay    Test = "one way"    // value: GB/s (10^9 bytes)
	Dialing   Test = "connect"    // connect, one byte to and fro, close; value: per second
	Get       Test = "get"        // HTTP, keep-alive; value: per second
)

// Task is one measurement of one transport.
type Task struct {
	Test        Test `json:"test"`
	Size        int  `json:"size_bytes"`  // of a message or body
	Connections int  `json:"connections"` // at work at the same time
	SpinOff     bool `json:"spin_off,omitempty"`
	// Windows, if not 0, is for how many windows of WindowMS milliseconds round trips are
	// made, for the shares of the connections in each. The time of the measurement is that.
	Windows  int     `json:"windows,omitempty"`
	WindowMS float64 `json:"window_ms,omitempty"`
}

// window returns the length of a window.
func (t Task) window() time.Duration { return time.Duration(t.WindowMS * float64(time.Millisecond)) }

// Outcome is the result of a Task.
type Outcome struct {
	Value float64 `json:"value"` // in the unit of the test
	// Rate is messages or round trips per second, of all connections together.
	// Slowest is the rate of the slowest connection as a fraction of the fair
	// share, with windows the least of them. Both are 0 for tests other than RoundTrip and
	// OneWay.
	Rate    float64 `json:"rate,omitempty"`
	Slowest float64 `json:"slowest,omitempty"`
	// P50 and P99 are of single round trips, in microseconds. They are 0 without windows.
	P50 float64 `json:"p50_us,omitempty"`
	P99 float64 `json:"p99_us,omitempty"`
}

// Items are the names by which rows are selected, in the order of the table.
var Items = []string{
	"roundtrip", "oneway", "stream", "parked", "busy", "many", "connect", "http", "idle",
}

// yardstick is the limit with which a row is compared.
type yardstick int

const (
	noLimit     yardstick = iota
	lineLimit             // a word to and fro
	doubleLimit           // two cache lines to and fro
	copyLimit             // two copies of messages of 64 KiB
	copyOfRound           // the figure is percent of the two copies of the same round
)

// figure is one row of the table: a part of an Outcome.
type figure struct {
	name  string
	unit  string
	less  bool // less is better
	limit yardstick
	of    func(Outcome) float64
}

// measurement is a Task and the rows that result from it.
type measurement struct {
	item string
	task Task
	busy bool // while other processes use all processors
	fair bool // in windows of time
	rows []figure
}

func value(o Outcome) float64   { return o.Value }
func slowest(o Outcome) float64 { return 100 * o.Slowest }

// many is how many connections work at once in the rows for many connections.
const many = 64

// smallMessage is the size of the messages in a stream of small writes.
const smallMessage = 64

// measurements returns the table, except idle connections, which need no rounds.
func measurements() []measurement {
	return []measurement{
		roundTrip("roundtrip", 56, "", lineLimit),
		roundTrip("roundtrip", 64, "", doubleLimit),
		oneWay("oneway", 16<<10, "", noLimit),
		ofRound(oneWay("oneway", 64<<10, "", copyLimit)),
		oneWay("oneway", 1<<20, "", copyLimit),
		{
			item: "stream", task: Task{Test: OneWay, Size: smallMessage, Connections: 1},
			rows: []figure{{"stream of 64 B writes", "M/s", false, noLimit, func(o Outcome) float64 { return o.Rate / 1e6 }}},
		},
		parked(roundTrip("parked", 64, ", spin off", noLimit)),
		busy(roundTrip("busy", 64, ", all processors busy", noLimit)),
		busy(oneWay("busy", 64<<10, ", all processors busy", noLimit)),
		{
			item: "many", task: Task{Test: OneWay, Size: 64 << 10, Connections: many},
			rows: []figure{
				{"one way, 64 KiB, 64 connections", "GB/s", false, noLimit, value},
				{"slowest of them, of its fair share", "%", false, noLimit, slowest},
			},
		},
		{
			item: "many", task: Task{Test: RoundTrip, Size: smallMessage, Connections: many}, fair: true,
			rows: []figure{
				{"round trips, 64 B, 64 connections", "k/s", false, noLimit, func(o Outcome) float64 { return o.Rate / 1e3 }},
				{"slowest of those in a second, of its fair share", "%", false, noLimit, slowest},
				{"p99 of those, times the median", "x", true, noLimit, func(o Outcome) float64 { return o.P99 / o.P50 }},
			},
		},
		{
			item: "connect", task: Task{Test: Dialing, Size: 1, Connections: 1},
			rows: []figure{{"connect, 1 B to and fro, close", "/s", false, noLimit, value}},
		},
		get(1<<10, 1),
		get(1<<10, 32),
		get(1<<20, 1),
	}
}

func roundTrip(item string, size int, when string, limit yardstick) measurement {
	return measurement{
		item: item, task: Task{Test: RoundTrip, Size: size, Connections: 1},
		rows: []figure{{"round trip, " + perf.SizeText(size) + when, "µs", true, limit, value}},
	}
}

func oneWay(item string, size int, when string, limit yardstick) measurement {
	return measurement{
		item: item, task: Task{Test: OneWay, Size: size, Connections: 1},
		rows: []figure{{"one way, " + perf.SizeText(size) + when, "GB/s", false, limit, value}},
	}
}

// ofRound adds a row with the figure as a part of two copies in the same round.
func ofRound(m measurement) measurement {
	f := m.rows[0]
	f.name, f.unit, f.limit = "the same, of two copies in its round", "%", copyOfRound
	m.rows = append(m.rows, f)
	return m
}

func get(size, clients int) measurement {
	name := fmt.Sprintf("HTTP GET of %s, clients: %d", perf.SizeText(size), clients)
	return measurement{
		item: "http", task: Task{Test: Get, Size: size, Connections: clients},
		rows: []figure{{name, "/s", false, noLimit, value}},
	}
}

func busy(m measurement) measurement {
	m.busy = true
	return m
}

func parked(m measurement) measurement {
	m.task.SpinOff = true
	return m
}

// sweepSizes returns the message sizes of the picture, in bytes.
func sweepSizes() (sizes []int) {
	for n := 4; n <= 4<<20; n *= 4 {
		sizes = append(sizes, n)
	}
	return sizes
}

// CheckItems returns the first of names that is not one of Items, or "".
func CheckItems(names []string) (unknown string) {
	for _, n := range names {
		if !slices.Contains(Items, n) {
			return n
		}
	}
	return ""
}

package flowctl

import (
	"math/rand/v2"
	"testing"
)

// model keeps the same account in 64-bit numbers that never wrap.
type model struct{ size, produced, consumed, returned, credited uint64 }

// A sender and a receiver, started just before the counters wrap, agree with
// the model after every step of a random walk.
func TestAccountsAgreeWithModelAcrossWrap(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4, 5, 6, 7, 8} {
		rnd := rand.New(rand.NewPCG(seed, 0))
		size := 1 << (6 + rnd.IntN(15))
		start := Pos(0) - Pos(rnd.IntN(3*size)) // wraps within a few queue lengths
		s, r := NewSend(size), NewRecv(size)
		s.produced, s.credited, r.consumed, r.returned = start, start, start, start
		m := model{size: uint64(size)}
		var inFlight []Pos // credit words under way, in order
		var inFlightM []uint64
		wrapped := false
		for step := range 20000 {
			switch rnd.IntN(4) {
			case 0:
				if room := s.Room(); room > 0 {
					n := 1 + rnd.IntN(room)
					s.Produce(n)
					m.produced += uint64(n)
				}
			case 1:
				if n := m.produced - m.consumed; n > 0 {
					k := 1 + rnd.Uint64N(n)
					r.Consume(int(k))
					m.consumed += k
				}
			case 2:
				if r.Due() != (m.consumed-m.returned >= m.size/4) {
					t.Fatalf("seed %d step %d: Due = %v", seed, step, r.Due())
				}
				inFlight = append(inFlight, r.Return())
				m.returned = m.consumed
				inFlightM = append(inFlightM, m.returned)
			case 3:
				if len(inFlight) > 0 {
					if !s.Credit(inFlight[0]) {
						t.Fatalf("seed %d step %d: honest credit refused", seed, step)
					}
					m.credited = inFlightM[0]
					inFlight, inFlightM = inFlight[1:], inFlightM[1:]
				}
			}
			if got, want := s.Outstanding(), int(m.produced-m.credited); got != want {
				t.Fatalf("seed %d step %d: outstanding %d, want %d", seed, step, got, want)
			}
			if got, want := s.Room(), int(m.size-(m.produced-m.credited)); got != want || got < 0 {
				t.Fatalf("seed %d step %d: room %d, want %d", seed, step, got, want)
			}
			if got, want := r.Owed(), int(m.consumed-m.returned); got != want {
				t.Fatalf("seed %d step %d: owed %d, want %d", seed, step, got, want)
			}
			wrapped = wrapped || s.produced < start
		}
		if !wrapped {
			t.Errorf("seed %d: the walk did not wrap", seed)
		}
	}
}

func TestImpossibleCreditIsRefused(t *testing.T) {
	for _, base := range []Pos{0, 1000, ^Pos(0) - 10, 1 << 31} {
		s := NewSend(4096)
		s.produced, s.credited = base, base
		s.Produce(100)
		if !s.Credit(base + 40) {
			t.Fatal("honest credit refused")
		}
		for _, bad := range []Pos{base + 101, base + 39, base - 1, base + 1<<31, base + 40 + 4096} {
			before := s
			if s.Credit(bad) {
				t.Errorf("base %d: credit of %d accepted", base, bad-base)
			}
			if s != before {
				t.Errorf("refused credit changed the account")
			}
		}
		if !s.Credit(base+40) || !s.Credit(base+100) || s.Room() != 4096 {
			t.Errorf("base %d: account wrong after refused credit", base)
		}
	}
}

func FuzzCreditNeverMakesMoreRoomThanTheQueue(f *testing.F) {
	f.Add(uint32(0), uint16(10), uint32(5))
	f.Add(^uint32(0), uint16(4096), uint32(3))
	f.Fuzz(func(t *testing.T, base uint32, n uint16, word uint32) {
		s := NewSend(1 << 16)
		s.produced, s.credited = Pos(base), Pos(base)
		s.Produce(int(n))
		s.Credit(Pos(word))
		if room := s.Room(); room < 1<<16-int(n) || room > 1<<16 {
			t.Fatalf("room %d", room)
		}
	})
}

func TestLimitBelowWhatIsUnderWay(t *testing.T) {
	s := NewSend(8192)
	s.Produce(6000)
	s.SetLimit(4096)
	if s.Room() >= 0 {
		t.Fatalf("room %d, want less than 0", s.Room())
	}
	s.Credit(6000)
	if s.Room() != 4096 {
		t.Fatalf("room %d, want 4096", s.Room())
	}
}

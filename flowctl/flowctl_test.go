package flowctl

import "testing"

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

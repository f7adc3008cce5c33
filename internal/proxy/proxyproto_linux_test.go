package proxy

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/stretchr/testify/require"
)

const (
	goodV1  = "PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n"
	startOf = "\r\n\r\n\x00\r\nQUIT\n"
	goodV2  = startOf + "\x21\x11\x00\x0c" + "\xc0\x00\x02\x07" + "\xc6\x33\x64\x01" + "\x12\x67\x00\x50"
	localV2 = startOf + "\x20\x00\x00\x00"
)

var badHeaders = map[string]string{
	"GET / HTTP/1.1\r\n\r\n":                 "no header of the PROXY protocol",
	"x":                                      "no header of the PROXY protocol",
	"PROXY\tTCP4 1.1.1.1 2.2.2.2 1 2\r\n":    "no header of the PROXY protocol",
	"PROXY TCP4 " + strings.Repeat("1", 200): "the header has more than 107 bytes",
	"PROXY TCP4 192.0.2.7 198.51.100.1 99999 80\r\n":             "",
	"PROXY TCP4 192.0.2.7 198.51.100.1 80\r\n":                   "",
	"PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\n":                "",
	"PROXY TCP6 192.0.2.7 198.51.100.1 4711 80\r\n":              "",
	startOf + "\x21\x11\xff\xff" + strings.Repeat("x", 100):      "the header has more than 4096 bytes",
	startOf + "\x31\x11\x00\x0c" + strings.Repeat("x", 12):       "",
	startOf + "\x2f\x11\x00\x0c" + strings.Repeat("x", 12):       "",
	startOf + "\x21\x11\x00\x04" + strings.Repeat("x", 4):        "",
	startOf + "\x21\x12\x00\x0c" + goodV2[len(goodV2)-12:]:       "the header is about datagrams",
	startOf[:11] + "x\x21\x11\x00\x0c" + goodV2[len(goodV2)-12:]: "no header of the PROXY protocol",
}

func TestAHeaderIsReadAndNothingBehindIt(t *testing.T) {
	for text, client := range map[string]string{
		goodV1: "192.0.2.7:4711", goodV2: "192.0.2.7:4711", localV2: "", "PROXY UNKNOWN\r\n": "", "PROXY UNKNOWN a b c\r\n": "",
		"PROXY TCP6 2001:db8::7 ::1 4711 80\r\n":                     "[2001:db8::7]:4711",
		startOf + "\x21\x11\x00\x10" + goodV2[16:] + "\xe0\x00\x01x": "192.0.2.7:4711",
	} {
		for _, r := range []io.Reader{strings.NewReader(text + "behind"), iotest.OneByteReader(strings.NewReader(text + "behind"))} {
			h, err := readHeader(r)
			require.NoError(t, err, "%q", text)
			if from, _, ok := h.TCPAddrs(); ok {
				require.Equal(t, client, from.String())
			} else {
				require.Empty(t, client, "%q", text)
			}
			rest, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Equal(t, "behind", string(rest))
		}
		for n := range len(text) {
			_, err := readHeader(strings.NewReader(text[:n]))
			require.ErrorContains(t, err, "the header is torn", "%q", text[:n])
		}
	}
	for text, want := range badHeaders {
		_, err := readHeader(strings.NewReader(text + strings.Repeat("x", maxHeaderV2)))
		require.ErrorContains(t, err, want, "%q", text)
	}
}

// Whatever comes, a header that is taken can be sent on, and what is behind it stays.
func FuzzHeader(f *testing.F) {
	for text := range badHeaders {
		f.Add([]byte(text))
	}
	for _, text := range []string{goodV1, goodV2, localV2} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bytes.NewReader(text)
		h, err := readHeader(r)
		require.LessOrEqual(t, len(text)-r.Len(), maxHeaderV2)
		if err == nil {
			from, to, _ := h.TCPAddrs()
			var a, b net.Addr
			if from != nil {
				a, b = from, to
			}
			_, err := proxyproto.HeaderProxyFromAddrs(1, a, b).Format()
			require.NoError(t, err)
		}
	})
}

// loopback lets proxies of this machine send headers.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// headed reads a header from a connection.
func headed(t *testing.T, c net.Conn) *proxyproto.Header {
	t.Helper()
	h, err := readHeader(c)
	require.NoError(t, err)
	return h
}

func TestTargetsGetTheAddressOfTheClient(t *testing.T) {
	for version, m := range map[byte]Map{1: {SendProxy: true}, 2: {SendProxyV2: true}} {
		eachPair(t, networks, func(t *testing.T, listen, target string) {
			e := newEnv(t)
			ln, at := e.serverOn(target)
			f := e.forward(listen, at, m)
			client := e.dial(f.Addr())
			sendHalf(t, client, []byte("all"))
			server := accept(t, ln)
			h := headed(t, server)
			require.Equal(t, version, h.Version)
			from, to, ok := h.TCPAddrs()
			require.Equal(t, listen == networkTCP, ok)
			if ok {
				require.Equal(t, client.LocalAddr().String(), from.String())
				require.Equal(t, client.RemoteAddr().String(), to.String())
			}
			wantAll(t, server, []byte("all"))
		})
	}
}

func TestAHeaderNamesTheClient(t *testing.T) {
	e := newEnv(t)
	ln, at := e.serverOn(networkTCP)
	f := e.forward(networkTCP, at, Map{Proxies: loopback, Sources: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, SendProxy: true})
	client := e.dial(f.Addr())
	sendHalf(t, client, []byte(goodV2+"all"))
	server := accept(t, ln)
	h := headed(t, server)
	from, to, ok := h.TCPAddrs()
	require.True(t, ok)
	require.Equal(t, "192.0.2.7:4711 198.51.100.1:80", from.String()+" "+to.String())
	eventually(t, "the two are joined", func() bool { return len(f.status().Connections) == 1 })
	require.Equal(t, "192.0.2.7:4711", f.status().Connections[0].Client)
	wantAll(t, server, []byte("all"))
	sendHalf(t, server, []byte("back"))
	wantAll(t, client, []byte("back"))
	e.logged("closed", "client", `"end of file"`)
	require.Contains(t, strings.Join(e.log.all(), ""), " client=192.0.2.7:4711 client_by=tcp via="+client.LocalAddr().String()+" ")
	// A header without a client leaves the balancer's own address. Neither that nor 192.0.3.7 may connect.
	for _, text := range []string{localV2, "PROXY TCP4 192.0.3.7 198.51.100.1 4711 80\r\n"} {
		c := e.dial(f.Addr())
		_, err := c.Write([]byte(text))
		require.NoError(t, err)
		require.Error(t, readToError(c))
		e.logged("refused", "proxy", allowFrom)
	}
	eventually(t, "both are refused", func() bool { return f.Stats().Refused == 2 })
	s := f.Stats()
	require.EqualValues(t, 1, s.Total)
	require.Zero(t, s.Open)
}

func TestHostileHeadersAreRefused(t *testing.T) {
	e := newEnv(t)
	m := Map{Listen: e.free(networkTCP), Targets: []Endpoint{e.names("a")}, Proxies: loopback}
	f := e.serve(&m)
	slow := e.dial(f.Addr()) // and says nothing more until the end
	_, err := slow.Write([]byte(goodV2[:20]))
	require.NoError(t, err)
	refused := 0
	for text := range badHeaders {
		c := e.dial(f.Addr())
		_, err := c.Write([]byte(text))
		require.NoError(t, err)
		require.NotErrorIs(t, readToError(c), io.EOF, "%q", text)
		refused++
	}
	torn := e.dial(f.Addr())
	sendHalf(t, torn, []byte(goodV2[:20]))
	require.NotErrorIs(t, readToError(torn), io.EOF)
	refused++
	eventually(t, "all are refused", func() bool { return f.Stats().Refused == int64(refused) })
	require.Equal(t, 1, f.Stats().Open)
	// Others are served meanwhile.
	c := e.dial(f.Addr())
	_, err = c.Write([]byte(goodV1))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	f.Close()
	require.Error(t, readToError(slow))
	require.Zero(t, f.Stats().Open)
}

func TestAHeaderHasATime(t *testing.T) {
	e := newEnv(t)
	f := newForwarder(&Map{}, env{log: e.log.logger()})
	defer f.conns.cancel()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go func() {
		for i := 0; ; i++ { // a byte now and then does not prolong it
			if _, err := b.Write([]byte{goodV1[i%len(goodV1)]}); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
			i %= 20
		}
	}()
	err := within(t.Context(), 20*time.Millisecond, a, func() error { _, err := readHeader(a); return err })
	require.ErrorContains(t, err, "timeout")
	b.Close()
}

func TestOnlyListedProxiesConnect(t *testing.T) {
	e := newEnv(t)
	m := Map{Listen: e.free(networkTCP), Targets: []Endpoint{e.names("a")}, Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	f := e.serve(&m)
	c, err := e.tryDial(f.Addr())
	if err == nil { // it may be reset before
		c.Write([]byte(goodV1))
		err = readToError(c)
		c.Close()
	}
	require.Error(t, err)
	e.logged("refused", "proxy", acceptProxy)
	require.EqualValues(t, 1, f.Stats().Refused)
}

// A check has no client, and says so in the header, so that a target which wants one takes it for what it is.
func TestChecksSendAHeaderWithoutAClient(t *testing.T) {
	e := newEnv(t)
	for _, m := range []Map{{SendProxy: true}, {SendProxyV2: true}} {
		ln, at := e.serverOn(networkTCP)
		m.Check = time.Millisecond
		e.forward(networkUnix, at, m)
		c := accept(t, ln)
		h := headed(t, c)
		_, _, ok := h.TCPAddrs()
		require.False(t, ok)
		require.Equal(t, m.SendProxyV2, h.Command.IsLocal() && h.Version == 2)
		require.ErrorIs(t, readToError(c), io.EOF)
	}
}

package names

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"monopod/internal/loopback"
)

func TestResolversOfAResolvConf(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("10.0.0.254")}
	for text, want := range map[string]string{
		"": "[]",
		"# nameserver 192.0.2.1\nsearch example.com\noptions rotate\n":            "[]",
		"nameserver 192.0.2.1\nnameserver\t192.0.2.2 # second\n":                  "[192.0.2.1:53 192.0.2.2:53]",
		"nameserver 2001:db8::1\nnameserver fe80::1%eth0":                         "[[2001:db8::1]:53 [fe80::1%eth0]:53]",
		"nameserver\nnameserver example.com\nnameservers 192.0.2.3\n":             "[]",
		"nameserver 10.0.0.254\nnameserver ::ffff:10.0.0.254\nnameserver 9.9.9.9": "[9.9.9.9:53]", // it would ask itself
	} {
		if got := fmt.Sprint(nameservers(text, 53, own)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestAnEditedResolvConfIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &forwarder{path: resolvConf(t, "nameserver 192.0.2.1\nnameserver 192.0.2.2\n"), port: 53}
		edit := func(text string, age time.Duration) {
			t.Helper()
			if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if at := time.Now().Add(age); os.Chtimes(f.path, at, at) != nil {
				t.Fatal("cannot set the time of the file")
			}
		}
		want := func(what, want string) {
			t.Helper()
			if got := fmt.Sprint(f.resolvers()); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		want("at first", "[192.0.2.1:53 192.0.2.2:53]")
		f.worked(netip.MustParseAddrPort("192.0.2.2:53"))
		want("the one that answered is asked first", "[192.0.2.2:53 192.0.2.1:53]")
		f.worked(netip.MustParseAddrPort("192.0.2.99:53")) // removed while it was asked
		edit("nameserver 192.0.2.3\n", time.Minute)
		want("within a second", "[192.0.2.2:53 192.0.2.1:53]")
		time.Sleep(rereadEvery + time.Millisecond)
		want("after a second", "[192.0.2.3:53]")
		if err := os.Remove(f.path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rereadEvery + time.Millisecond)
		want("without a file", "[]")
		edit("nameserver 192.0.2.4\n", 2*time.Minute)
		time.Sleep(rereadEvery + time.Millisecond)
		want("when it is back", "[192.0.2.4:53]")
	})
}

func TestOnlyAnswersToTheQuestionAreTaken(t *testing.T) {
	asked := question(t, "www.example.com.", dnsmessage.TypeA)
	reply := func(edit func(*dnsmessage.Message)) []byte {
		q, _, _ := parseQuery(asked)
		r := newReply(q, dnsmessage.RCodeSuccess)
		edit(&r.Message)
		return r.pack(512)
	}
	for what, tt := range map[string]struct {
		answer []byte
		want   bool
	}{
		"the answer":           {reply(func(*dnsmessage.Message) {}), true},
		"in other case":        {reply(func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("WWW.example.COM.") }), true},
		"an error":             {reply(func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeNameError }), true},
		"a refusal without it": {reply(func(m *dnsmessage.Message) { m.Questions, m.RCode = nil, dnsmessage.RCodeRefused }), true},
		"success without it":   {reply(func(m *dnsmessage.Message) { m.Questions = nil }), false},
		"another id":           {reply(func(m *dnsmessage.Message) { m.ID++ }), false},
		"a question":           {reply(func(m *dnsmessage.Message) { m.Response = false }), false},
		"another name":         {reply(func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("www.example.org.") }), false},
		"another type":         {reply(func(m *dnsmessage.Message) { m.Questions[0].Type = dnsmessage.TypeAAAA }), false},
		"another class":        {reply(func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS }), false},
		"less than a header":   {[]byte{0, 7, 0x80}, false},
		"half of the question": {reply(func(*dnsmessage.Message) {})[:20], false},
		"nothing":              {nil, false},
	} {
		if got := answers(asked, tt.answer); got != tt.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

func TestTheNextResolverIsAskedWhenOneRefuses(t *testing.T) {
	first, second := loopback.Address(), loopback.Address()
	port := resolver(t, first+":0", func(q query) []*reply {
		r := newReply(q, dnsmessage.RCodeRefused)
		r.Questions = nil // as some do
		return []*reply{r}
	})
	f := &forwarder{path: resolvConf(t, "nameserver "+first+"\nnameserver "+second+"\n"), port: port}
	ask := func() string {
		t.Helper()
		answer, err := f.forward(t.Context(), "udp", question(t, "www.example.com.", dnsmessage.TypeA))
		if err != nil {
			t.Fatal(err)
		}
		return show(t, answer)
	}
	if got := ask(); got != "Refused" { // no other resolver answers: the client is told what this one said
		t.Error(got)
	}
	upstream(t, fmt.Sprintf("%s:%d", second, port))
	if got := ask(); got != "Success 192.0.2.80" {
		t.Error(got)
	}
	if at := f.resolvers()[0].Addr().String(); at != second {
		t.Errorf("%s is asked first next time", at)
	}
}

func TestMessagesOverTCP(t *testing.T) {
	var b bytes.Buffer
	for _, msg := range [][]byte{{}, []byte("abc"), bytes.Repeat([]byte("x"), maxMessage)} {
		if err := writeTCP(&b, msg); err != nil {
			t.Fatal(err)
		}
		if got, err := readTCP(&b); err != nil || !slices.Equal(got, msg) {
			t.Errorf("%d bytes are read as %d, %v", len(msg), len(got), err)
		}
	}
	if err := writeTCP(&b, make([]byte, maxMessage+1)); err == nil || b.Len() > 0 {
		t.Errorf("%d bytes of a message that is too long, %v", b.Len(), err)
	}
	for text, want := range map[string]error{"": io.EOF, "\x00": io.ErrUnexpectedEOF, "\x00\x05abc": io.ErrUnexpectedEOF} {
		if _, err := readTCP(strings.NewReader(text)); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

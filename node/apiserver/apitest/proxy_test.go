package apitest

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers each connection with a text and closes it.
func server(t *testing.T, text string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().String()
}

// get connects and reads what comes until patience is over.
func get(t *testing.T, address string, patience time.Duration) (string, error) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

func TestAProxyInjectsTheConfiguredFaults(t *testing.T) {
	p := NewProxy(t, server(t, strings.Repeat("x", 100_000)))
	if got, _ := get(t, p.Address(), 10*time.Second); len(got) == 0 {
		t.Error("nothing passes")
	}
	p.Set(Mode{Refuse: true})
	if got, err := get(t, p.Address(), 10*time.Second); err == nil || got != "" {
		t.Errorf("%q %v", got, err)
	}
	p.Set(Mode{CutAfter: 10})
	if got, err := get(t, p.Address(), 10*time.Second); err == nil || len(got) >= 100_000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	p.Set(Mode{Silent: true})
	if got, err := get(t, p.Address(), 100*time.Millisecond); err == nil || got != "" {
		t.Errorf("%q %v", got, err)
	}
}

func TestCertificatesAreOfTheirAuthority(t *testing.T) {
	a := NewAuthority(t)
	pair := a.Issue(t, Node("n")).TLS(t)
	if pair.Leaf.Subject.CommonName != "system:node:n" || pair.Leaf.CheckSignatureFrom(a.cert) != nil {
		t.Error(pair.Leaf.Subject)
	}
}

package httpget

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// request returns a request to a listener.
func request(t *testing.T, l net.Listener) *Request {
	t.Helper()
	r, err := New(&url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/"}, http.Header{"Connection": {"close"}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestARequestEndsWithItsContext: hooks have no deadline.
func TestARequestEndsWithItsContext(t *testing.T) {
	l, gone := listen(t), errors.New("gone")
	plain := request(t, l)
	for name, r := range map[string]*Request{
		"HTTP/1":    plain,
		"HTTP/2":    NewHTTP2(plain.URL, nil),
		"handshake": {URL: &url.URL{Scheme: "https", Host: plain.URL.Host}, text: plain.text},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := r.Do(ctx, time.Time{})
			done <- err
		}()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Read(make([]byte, 1)) // wait for the request
		cancel(gone)
		if err := <-done; !errors.Is(err, gone) {
			t.Errorf("%s: %v", name, err)
		}
		_ = c.Close()
	}
}

// TestAConnectEndsWithItsContext: the backlog of the server is full, so that the kernel repeats the request to connect for minutes.
func TestAConnectEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f, err := dialIP(ctx, netip.MustParseAddrPort(deaf(t)), time.Time{}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, %v", f, err)
	}
}

// TestAServerWithoutTLS: a hook then tries without.
func TestAServerWithoutTLS(t *testing.T) {
	l := listen(t)
	for answer, mismatch := range map[string]bool{"HTTP/1.0 400 Bad Request\r\n\r\n": true, "SSH-2.0-OpenSSH\r\n": false} {
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, answer)
			_ = c.Close()
		}()
		_, err := DialTLS(t.Context(), l.Addr().String(), time.Time{})
		if err == nil || errors.Is(err, http.ErrSchemeMismatch) != mismatch {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

func TestErrorsNameTheURLThatFailed(t *testing.T) {
	l := listen(t)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/x\r\n\r\n")
		_ = c.Close()
	}()
	_, err := request(t, l).Do(t.Context(), time.Time{})
	if err == nil || !strings.Contains(err.Error(), `Get "ftp://127.0.0.1/x": unsupported protocol scheme "ftp"`) {
		t.Error(err)
	}
}

func FuzzRedirect(f *testing.F) {
	f.Add("/a", "//b/c")
	f.Fuzz(func(t *testing.T, path, location string) {
		from, err := url.Parse("http://10.0.0.1:80" + path)
		if err != nil {
			t.Skip()
		}
		a := Answer{Code: 302, location: location}
		if u, err := a.redirect(from); err == nil && u != nil && u.Scheme == "" {
			t.Errorf("from %s to %q: %s has no scheme", from, location, u)
		}
	})
}

// deaf returns the address of a server with a full backlog.
func deaf(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*unix.SockaddrInet4).Port))
	c, err := net.Dial("tcp", address) // fills it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return address
}

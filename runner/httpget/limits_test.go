package httpget

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// stream is the answer of a server that ends only if it is read too far.
type stream struct {
	begin, repeat string
	sent          int
}

// tooFar is far beyond all limits of an answer.
const tooFar = 1 << 20

func (s *stream) Read(p []byte) (int, error) {
	if s.sent > tooFar {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) {
		text := s.repeat
		if s.sent < len(s.begin) {
			text = s.begin[s.sent:]
		} else {
			text = text[(s.sent-len(s.begin))%len(text):]
		}
		c := copy(p[n:], text)
		n, s.sent = n+c, s.sent+c
	}
	return n, nil
}

// TestAnEndlessAnswerIsReadToALimit: the server of a pod decides what it sends.
func TestAnEndlessAnswerIsReadToALimit(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, tt := range map[string]struct {
		stream
		err string
	}{
		"long header lines":       {stream{begin: ok, repeat: "Name: " + strings.Repeat("x", 1000) + "\r\n"}, "longer than 65536 bytes"},
		"short header lines":      {stream{begin: ok, repeat: "A:\r\n"}, "more than 256 lines"},
		"one header line":         {stream{begin: ok + "A: ", repeat: "x"}, "longer than 65536 bytes"},
		"one continued line":      {stream{begin: ok + "A: ", repeat: "x\r\n "}, "more than 256 lines"},
		"the status line":         {stream{begin: "HTTP/1.1 200 ", repeat: "OK"}, "longer than 65536 bytes"},
		"informational responses": {stream{repeat: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"}, "too many 1xx"},
		"one of them":             {stream{begin: "HTTP/1.1 103 Early Hints\r\n", repeat: "Link: </a>\r\n"}, "more than 256 lines"},
		"a body":                  {stream{begin: ok + "\r\n", repeat: "x"}, ""},
		"chunks":                  {stream{begin: ok + "Transfer-Encoding: chunked\r\n\r\n", repeat: "1\r\nx\r\n"}, ""},
		"an extension of a chunk": {stream{begin: ok + "Transfer-Encoding: chunked\r\n\r\n1;", repeat: "x"}, "line too long"},
		"a trailer":               {stream{begin: ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n", repeat: "A: x\r\n"}, "trailer"},
		"no response":             {stream{begin: "220 mail.example ESMTP\r\n", repeat: "250 hello\r\n"}, "malformed HTTP"},
	} {
		_, err := read(bufio.NewReaderSize(&tt.stream, 4<<10))
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: error %v, want %q", name, err, tt.err)
		}
		if tt.sent > headLimit+BodyLimit+16<<10 {
			t.Errorf("%s: %d bytes were read", name, tt.sent)
		}
	}
}

// TestHeadsWithinTheLimitsAreRead, however they arrive.
func TestHeadsWithinTheLimitsAreRead(t *testing.T) {
	many := strings.Repeat("Name: "+strings.Repeat("x", 200)+"\r\n", headLines-2)
	for name, answer := range map[string]string{
		"short":             "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
		"newlines only":     "HTTP/1.1 200 OK\nContent-Length: 4\n\nbody",
		"long":              "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n" + many + "\r\nbody",
		"after information": strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 5) + "HTTP/1.1 200 OK\r\n" + many + "\r\nbody",
		"after much of it":  "HTTP/1.1 103 Early Hints\r\n" + many + "\r\nHTTP/1.1 200 OK\r\n" + many + "\r\nbody",
		"a body of lines":   "HTTP/1.1 200 OK\r\n\r\nbody" + strings.Repeat("\n", 2*headLines),
	} {
		for way, r := range map[string]io.Reader{"at once": strings.NewReader(answer), "by bytes": iotest.OneByteReader(strings.NewReader(answer))} {
			a, err := read(bufio.NewReaderSize(r, 4<<10))
			if err != nil || a.Code != 200 || strings.TrimSpace(a.Body) != "body" {
				t.Errorf("%s, %s: %v, status %d, body %.20q", name, way, err, a.Code, a.Body)
			}
		}
	}
}

// TestABannerIsNoResponse: a server that speaks first, and then waits, is told at once.
func TestABannerIsNoResponse(t *testing.T) {
	pipe, server := io.Pipe()
	go func() { _, _ = io.WriteString(server, "220 mail.example ESMTP\r\n") }()
	if _, err := read(bufio.NewReader(pipe)); err == nil || !strings.Contains(err.Error(), "malformed HTTP") {
		t.Error(err)
	}
}

// TestTheHeadOfHTTP2IsBounded: a server may send as much as we permit.
func TestTheHeadOfHTTP2IsBounded(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 200 {
			w.Header().Set(fmt.Sprint("Name", i), strings.Repeat("x", len(r.URL.Path)))
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	for size, ok := range map[int]bool{100: true, 1000: false} {
		u, err := url.Parse(s.URL + "/" + strings.Repeat("p", size))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewHTTP2(u, nil).Do(t.Context(), time.Time{}); (err == nil) != ok {
			t.Errorf("200 headers of %d bytes: %v", size, err)
		}
	}
}

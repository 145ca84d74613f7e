package intake

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"monopod/node/localapi"
)

func request(t *testing.T, body io.Reader, length int64) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/apis/monopod.dev/v1alpha1/agents/self/applied", body)
	r.ContentLength = length
	return r
}

func TestLargeRequestsAreRefused(t *testing.T) {
	for body, want := range map[string]string{
		`{"files":[{"name":"a","content":"YQ=="}]}`:                                       "",
		`{"files":[{"name":"a","content":"` + strings.Repeat("YWFh", 1<<14) + `"}]}`:      "",
		`{"files":[{"name":"a","content":"` + strings.Repeat("YWFh", maxApply/4) + `"}]}`: "it has more than 16 MiB; apply fewer files at once",
		`{"files":[` + strings.Repeat("{},", maxApplyValues/2) + `{}]}`:                   "the JSON has more than 50000 values: that takes too much memory",
		`{"files":[{"name":[` + strings.Repeat("1,", maxApplyValues) + `1]}]}`:            "the JSON has more than 50000 values: that takes too much memory",
		`{"other":1}`: `json: unknown field "other"`,
	} {
		var req localapi.ApplyRequest
		end, err := New().Large(httptest.NewRecorder(), request(t, strings.NewReader(body), int64(len(body))), &req)
		end()
		if got := errorText(err); got != want {
			t.Errorf("%.40s: %q, want %q", body, got, want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// What they take in memory adds up otherwise.
func TestLargeRequestsComeOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		decode := func(ctx context.Context, length int64) (end func(), err error) {
			var req localapi.ApplyRequest
			return s.Large(httptest.NewRecorder(), request(t, strings.NewReader(`{}`), length).WithContext(ctx), &req)
		}
		first, err := decode(t.Context(), fewBytes+1)
		if err != nil {
			t.Fatal(err)
		}
		small, err := decode(t.Context(), fewBytes)
		if err != nil {
			t.Fatal(err)
		}
		small()
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() { end, err := decode(ctx, -1); end(); gone <- err }()
		second := make(chan error)
		go func() { end, err := decode(t.Context(), -1); end(); second <- err }()
		synctest.Wait()
		select {
		case err := <-second:
			t.Fatalf("the second did not wait: %v", err)
		default:
		}
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("one whose client has gone: %v", err)
		}
		first()
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}

// TestARollbackWaitsForNoOtherRequest, nor does a request on the socket wait for one over TCP: their clients may send slowly.
func TestARollbackWaitsForNoOtherRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		remote := request(t, strings.NewReader(`{}`), -1)
		remote.TLS = &tls.ConnectionState{}
		var req localapi.ApplyRequest
		endRemote, err := s.Large(httptest.NewRecorder(), remote, &req)
		if err != nil {
			t.Fatal(err)
		}
		end, err := s.Large(httptest.NewRecorder(), request(t, strings.NewReader(`{}`), -1), &req)
		if err != nil {
			t.Fatal(err)
		}
		var small localapi.RollbackRequest
		if err := s.Small(httptest.NewRecorder(), request(t, strings.NewReader(`{"to":3}`), -1), &small); err != nil || small.To != 3 {
			t.Errorf("%v, %+v", err, small)
		}
		end()
		endRemote()
		err = s.Small(httptest.NewRecorder(), request(t, strings.NewReader(strings.Repeat(" ", fewBytes+1)), -1), &small)
		if got := errorText(err); got != "it has more than 64 KiB" {
			t.Error(got)
		}
	})
}

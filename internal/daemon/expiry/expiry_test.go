package expiry

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/node/kubeapi/access"
	"monopod/runner/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is an API with one Job.
type server struct {
	t *testing.T

	mu  sync.Mutex // guards all below
	job *batchv1.Job
	// failures is how many deletes fail.
	failures int
	requests []string
}

// seen returns whether the Job is there, and the requests so far.
func (s *server) seen() (there bool, requests []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.job != nil, slices.Clone(s.requests)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	s.requests = append(s.requests, r.Method)
	if u := access.UserOf(r.Context()); !strings.HasSuffix(u.Name, ":ttl-after-finished-controller") || !slices.Contains(u.Groups, access.GroupMasters) {
		s.t.Errorf("user %+v", u)
	}
	answer := func(code int, o any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(o)
	}
	switch {
	case r.URL.Path != "/apis/batch/v1/namespaces/ns/jobs/j":
		s.t.Errorf("path %s", r.URL.Path)
	case s.job == nil:
		answer(http.StatusNotFound, &metav1.Status{Message: "not found"})
	case r.Method == http.MethodGet:
		answer(http.StatusOK, s.job)
	case s.failures > 0:
		s.failures--
		answer(http.StatusServiceUnavailable, &metav1.Status{Message: "the disk is full"})
	default:
		var o metav1.DeleteOptions
		if err := json.Unmarshal(body, &o); err != nil || *o.Preconditions.UID != s.job.UID || *o.Preconditions.ResourceVersion != "7" || *o.PropagationPolicy != metav1.DeletePropagationForeground {
			s.t.Errorf("options %s: %v", body, err)
		}
		s.job = nil
		answer(http.StatusOK, &metav1.Status{})
	}
}

func finished(edit func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", UID: "u", ResourceVersion: "7"}}
	j.Spec.TTLSecondsAfterFinished = new(int32(10))
	j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	if edit != nil {
		edit(j)
	}
	return j
}

func TestOnlyTheJobThatHasExpiredIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*batchv1.Job)
		uid     types.UID
		deleted bool
	}{
		"expired":                 {nil, "u", true},
		"failed":                  {func(j *batchv1.Job) { j.Status.Conditions[0].Type = batchv1.JobFailed }, "u", true},
		"stored by monopod apply": {nil, "", true},
		"created again":           {nil, "old", false},
		"runs again":              {func(j *batchv1.Job) { j.Status.Conditions = nil }, "", false},
		"a longer TTL":            {func(j *batchv1.Job) { *j.Spec.TTLSecondsAfterFinished = 100 }, "u", false},
		"no TTL":                  {func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = nil }, "u", false},
		"held by finalizers":      {func(j *batchv1.Job) { j.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, "u", false},
	} {
		s := &server{t: t, job: finished(c.edit)}
		err := (&Controller{API: s, Log: slog.New(slog.DiscardHandler)}).deleteAll(t.Context(), []workload.Expired{{Namespace: "ns", Name: "j", UID: c.uid, TTL: 10}})
		if err != nil || (s.job == nil) != c.deleted {
			t.Errorf("%s: %v, requests %v", name, err, s.requests)
		}
	}
}

func TestWhatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t, job: finished(nil), failures: 3}
		changed := make(chan struct{}, 1)
		var jobs []workload.Expired
		var logged strings.Builder
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		c := &Controller{API: s, Log: slog.New(slog.NewTextHandler(&logged, nil)), Expired: func() ([]workload.Expired, <-chan struct{}) { return jobs, changed }}
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		if _, requests := s.seen(); len(requests) > 0 {
			t.Errorf("requests %v", requests)
		}
		jobs = []workload.Expired{{Namespace: "ns", Name: "j", UID: "u", TTL: 10}}
		changed <- struct{}{}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if there, _ := s.seen(); !there {
			t.Error("it is deleted too early")
		}
		time.Sleep(2 * time.Second) // after 1, 2 and 4 seconds
		synctest.Wait()
		if there, requests := s.seen(); there || strings.Count(logged.String(), "the disk is full") != 1 {
			t.Errorf("%v, log %s", requests, logged.String())
		}
		changed <- struct{}{} // what is gone is no error
		synctest.Wait()
		time.Sleep(time.Hour)
		if _, requests := s.seen(); len(requests) != 9 {
			t.Errorf("%d requests: %v", len(requests), requests)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

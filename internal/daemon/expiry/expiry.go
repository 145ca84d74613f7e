// Package expiry deletes finished Jobs whose ttlSecondsAfterFinished has elapsed, as the TTL controller of Kubernetes does.
//
// It is a client of the Kubernetes API of this machine, so that finalizers, dependents and locks are those of every delete. It must not decide
// when a Job has expired: package workload counts the time. It starts no goroutines.
package expiry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/pause"
	"monopod/node/kubeapi/access"
	"monopod/runner/workload"
)

const (
	// firstRetry and lastRetry limit the pause after a delete that failed; it doubles with each failure.
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// timeout bounds one request.
	timeout = time.Minute
)

// Controller deletes expired Jobs.
type Controller struct {
	// API serves the requests.
	API http.Handler
	// Expired returns the expired Jobs, and a channel that receives a value when there may be others.
	Expired func() ([]workload.Expired, <-chan struct{})
	Log     *slog.Logger
}

// Run deletes Jobs until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	timer := time.NewTimer(pause.FarAway)
	defer timer.Stop()
	retry, logged := firstRetry, ""
	for {
		jobs, changed := c.Expired()
		wait, text := pause.FarAway, ""
		if err := c.deleteAll(ctx, jobs); err != nil && ctx.Err() == nil {
			wait, text = retry, err.Error()
			retry = min(2*retry, lastRetry)
		} else {
			retry = firstRetry
		}
		if text != "" && text != logged {
			c.Log.Error("delete finished Jobs", "err", text, "retry_in", wait)
		}
		logged = text
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-timer.C:
		}
	}
}

func (c *Controller) deleteAll(ctx context.Context, jobs []workload.Expired) error {
	var errs []error
	for i := range jobs {
		if err := c.delete(ctx, &jobs[i]); err != nil {
			errs = append(errs, fmt.Errorf("job %s/%s: %w", jobs[i].Namespace, jobs[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// delete deletes a Job, unless it has changed so that it is not to be deleted any more: it may have been created again.
func (c *Controller) delete(ctx context.Context, e *workload.Expired) error {
	path := "/apis/batch/v1/namespaces/" + e.Namespace + "/jobs/" + e.Name
	var job batchv1.Job
	found, err := c.call(ctx, http.MethodGet, path, nil, &job)
	if err != nil || !found || !isExpired(&job, e) {
		return err
	}
	foreground := metav1.DeletePropagationForeground
	deleted, err := c.call(ctx, http.MethodDelete, path, &metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions:     &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion},
		PropagationPolicy: &foreground,
	}, nil)
	if err == nil && deleted {
		c.Log.Info("Job deleted: its ttlSecondsAfterFinished has elapsed", "job", e.Namespace+"/"+e.Name)
	}
	return err
}

// isExpired reports whether a Job is the one that has expired.
func isExpired(job *batchv1.Job, e *workload.Expired) bool {
	if e.UID != "" && job.UID != e.UID || job.DeletionTimestamp != nil || job.Spec.TTLSecondsAfterFinished == nil || *job.Spec.TTLSecondsAfterFinished != e.TTL {
		return false
	}
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// call sends a request, and decodes the answer into a value unless it is nil. found is false if the object does not exist.
func (c *Controller) call(ctx context.Context, method, path string, body, into any) (found bool, err error) {
	ctx, cancel := context.WithTimeout(access.WithUser(ctx, controller()), timeout)
	defer cancel()
	var data bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&data).Encode(body); err != nil {
			return false, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, path, &data)
	if err != nil {
		return false, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "ttl-after-finished-controller")
	w := &answer{header: http.Header{}}
	c.API.ServeHTTP(w, r)
	switch code := cmp.Or(w.code, http.StatusOK); {
	case code == http.StatusNotFound:
		return false, nil
	case code >= http.StatusBadRequest:
		var status metav1.Status
		if json.Unmarshal(w.body.Bytes(), &status) != nil || status.Message == "" {
			status.Message = http.StatusText(code)
		}
		return true, errors.New(status.Message)
	case into != nil:
		return true, json.Unmarshal(w.body.Bytes(), into)
	}
	return true, nil
}

// controller is the user of the controller in Kubernetes. It may do everything, as root on the socket.
func controller() access.User {
	return access.User{Name: "system:serviceaccount:kube-system:ttl-after-finished-controller", Groups: access.Root().Groups}
}

// answer is a http.ResponseWriter in memory.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) { a.code = cmp.Or(a.code, code) }

func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

package node

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/localapi"
)

// serveLog streams the log of an instance of a container, or of the one that the query names, as plain text. Parameters and errors are
// those of the kubelet's containerLogs; fail writes an error response.
func (s *Server) serveLog(w http.ResponseWriter, r *http.Request, container string, fail func(*apierrors.StatusError)) {
	f := podFilter{namespace: r.PathValue("namespace"), name: r.PathValue("name")}
	pod, err := s.FindPod(r.Context(), f.namespace, f.name)
	switch {
	case err != nil:
		fail(statusError(http.StatusServiceUnavailable, err.Error()))
		return
	case pod == nil:
		fail(statusError(http.StatusNotFound, fmt.Sprintf("pod %q does not exist", f.name)))
		return
	}
	o, err := parseLogOptions(r.URL.Query())
	if err != nil {
		fail(statusError(http.StatusUnprocessableEntity, "Invalid request: "+err.Error()))
		return
	}
	if container != "" {
		o.container = container
	}
	instance, fault := logInstance(pod, &o)
	if fault != nil {
		fail(fault)
		return
	}
	q := o.query(time.Now())
	q.Pod, q.Instance = pod, instance
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if q.Follow {
		ended := make(chan struct{})
		done := make(chan struct{})
		go func() { defer close(done); s.waitEnded(ctx, pod, instance); close(ended) }()
		defer func() { cancel(); <-done }()
		q.Ended = ended
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := &flushWriter{w: w, flush: http.NewResponseController(w)}
	if err := s.cfg.Logs.ReadLog(ctx, q, out); err != nil && ctx.Err() == nil {
		s.cfg.Log.Debug("read log", "pod", f.namespace+"/"+f.name, "container", instance.Container, "err", err)
		if !out.started {
			fail(apierrors.NewInternalError(err))
		}
	}
}

// waitEnded returns when the container instance no longer runs, or ctx has ended.
func (s *Server) waitEnded(ctx context.Context, pod *corev1.Pod, i Instance) {
	changed, cancel := s.cfg.Pods.Subscribe()
	defer cancel()
	for s.runs(pod, i) {
		select {
		case <-ctx.Done():
			return
		case _, open := <-changed:
			if !open {
				return
			}
		}
	}
}

func (s *Server) runs(pod *corev1.Pod, i Instance) bool {
	views, err := s.cfg.Pods.Pods()
	if err != nil {
		return true // it cannot be seen, which does not mean that it has ended
	}
	for _, v := range views {
		if v.Pod.UID != pod.UID || v.Pod.Namespace != pod.Namespace || v.Pod.Name != pod.Name {
			continue
		}
		st := containerStatus(v.Pod, i.Container)
		return st != nil && st.State.Running != nil && bareID(st.ContainerID) == i.ID
	}
	return false
}

// parseLogOptions reads the query parameters under the names of v1.PodLogOptions.
func parseLogOptions(v url.Values) (logOptions, error) {
	o := logOptions{tail: -1}
	o.container = v.Get("container")
	p := paramReader{v: v}
	o.follow = p.boolean("follow")
	o.previous = p.boolean("previous")
	o.timestamps = p.boolean("timestamps")
	name := "tailLines"
	if v.Has("tail") { // the kubelet's older name
		name = "tail"
	}
	if v.Get(name) != "all" {
		o.tail = p.number(name, 0, -1)
	}
	o.limitBytes = p.number("limitBytes", 1, 0)
	o.sinceSeconds = p.number("sinceSeconds", 1, 0)
	if t := v.Get("sinceTime"); t != "" {
		at, err := time.Parse(time.RFC3339, t)
		p.fail("sinceTime", err)
		o.sinceTime = at
		if o.sinceSeconds > 0 {
			p.fail("sinceTime", fmt.Errorf("at most one of sinceTime and sinceSeconds may be given"))
		}
	}
	if o.stream = v.Get("stream"); o.stream == corev1.LogStreamAll {
		o.stream = ""
	}
	if !slices.Contains([]string{"", corev1.LogStreamStdout, corev1.LogStreamStderr}, o.stream) {
		p.fail("stream", fmt.Errorf("%q is not All, Stdout or Stderr", o.stream))
	}
	if len(p.errs) > 0 {
		return o, fmt.Errorf("%s", strings.Join(p.errs, "; "))
	}
	return o, nil
}

type logOptions struct {
	container    string
	follow       bool
	previous     bool
	timestamps   bool
	tail         int64
	limitBytes   int64
	sinceSeconds int64
	sinceTime    time.Time
	stream       string
}

func (o *logOptions) query(now time.Time) LogQuery {
	q := LogQuery{Follow: o.follow, Tail: int(o.tail), Since: o.sinceTime, Timestamps: o.timestamps, LimitBytes: o.limitBytes, Stream: o.stream}
	if o.sinceSeconds > 0 {
		q.Since = now.Add(-time.Duration(o.sinceSeconds) * time.Second)
	}
	return q
}

// paramReader reads typed query parameters and collects what is wrong with them.
type paramReader struct {
	v    url.Values
	errs []string
}

func (p *paramReader) fail(name string, err error) {
	if err != nil {
		p.errs = append(p.errs, name+": "+err.Error())
	}
}

func (p *paramReader) boolean(name string) bool {
	if !p.v.Has(name) {
		return false
	}
	if p.v.Get(name) == "" { // a bare ?follow, as an API server reads it
		return true
	}
	b, err := strconv.ParseBool(p.v.Get(name))
	p.fail(name, err)
	return b
}

// number returns absent when the parameter is not given.
func (p *paramReader) number(name string, least, absent int64) int64 {
	if p.v.Get(name) == "" {
		return absent
	}
	n, err := strconv.ParseInt(p.v.Get(name), 10, 64)
	p.fail(name, err)
	if err == nil && n < least {
		p.fail(name, fmt.Errorf("must be at least %d", least))
	}
	return n
}

// logInstance finds which instance's log is wanted. A pod's only container need not be named.
func logInstance(pod *corev1.Pod, o *logOptions) (Instance, *apierrors.StatusError) {
	names := ContainerNames(pod)
	if o.container == "" && len(names)-len(pod.Spec.EphemeralContainers) == 1 {
		o.container = names[0]
	}
	if o.container == "" {
		return Instance{}, statusError(http.StatusBadRequest, fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", pod.Name, names))
	}
	if !slices.Contains(names, o.container) {
		return Instance{}, statusError(http.StatusNotFound, fmt.Sprintf("container %q not found in pod %q", o.container, pod.Name))
	}
	i := Instance{Container: o.container}
	st := containerStatus(pod, o.container)
	if st == nil {
		return i, statusError(http.StatusBadRequest, fmt.Sprintf("container %q in pod %q is waiting to start - no logs yet", o.container, pod.Name))
	}
	last := st.LastTerminationState.Terminated
	i.ID = bareID(st.ContainerID)
	switch current := st.State.Running != nil || st.State.Terminated != nil; {
	case o.previous && last == nil:
		return i, statusError(http.StatusBadRequest, fmt.Sprintf("previous terminated container %q in pod %q not found", o.container, pod.Name))
	case current && !o.previous:
	case last != nil: // asked for, or all there is while the next instance is being prepared
		i.ID = bareID(last.ContainerID)
		if next := bareID(st.ContainerID); next != i.ID {
			i.Successor = next
		}
	default:
		return i, statusError(http.StatusBadRequest, fmt.Sprintf("container %q in pod %q is %s", o.container, pod.Name, waitingText(st)))
	}
	return i, nil
}

// bareID strips the scheme of a container id in a status.
func bareID(id string) string {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		return bare
	}
	return id
}

func waitingText(st *corev1.ContainerStatus) string {
	reason := ""
	if st.State.Waiting != nil {
		reason = st.State.Waiting.Reason
	}
	switch reason {
	case "":
		return "waiting to start - no logs yet"
	case "ErrImagePull":
		return "waiting to start: image can't be pulled"
	case "ImagePullBackOff":
		return "waiting to start: trying and failing to pull image"
	default:
		return "waiting to start: " + reason
	}
}

// ContainerNames returns the names of all containers of a pod: init containers after the others, ephemeral ones last.
func ContainerNames(pod *corev1.Pod) []string {
	var names []string
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		names = append(names, c.Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}

func containerStatus(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func statusError(code int32, msg string) *apierrors.StatusError {
	reasons := map[int32]metav1.StatusReason{
		http.StatusNotFound:            metav1.StatusReasonNotFound,
		http.StatusBadRequest:          metav1.StatusReasonBadRequest,
		http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
		http.StatusMethodNotAllowed:    metav1.StatusReasonMethodNotAllowed,
		http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reasons[code], Message: msg, Details: &metav1.StatusDetails{Group: localapi.Group},
	}}
}

// flushWriter sends each piece at once, so that a follower sees lines as they come.
type flushWriter struct {
	w       http.ResponseWriter
	flush   *http.ResponseController
	started bool
}

func (f *flushWriter) Write(b []byte) (int, error) {
	f.started = true
	n, err := f.w.Write(b)
	if err != nil {
		return n, err
	}
	return n, f.flush.Flush()
}

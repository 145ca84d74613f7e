package localclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/node/events"
	"monopod/node/localapi"
	"monopod/node/why"
)

// Agent returns what the daemon costs the machine.
func (c *Client) Agent(ctx context.Context) (localapi.Agent, error) {
	var a localapi.Agent
	return a, c.getJSON(ctx, localapi.Self("costs"), &a)
}

// Usage returns what the machine, its pods and their containers use of processors and memory.
func (c *Client) Usage(ctx context.Context) (statsapi.Summary, error) {
	var s statsapi.Summary
	return s, c.getJSON(ctx, "/stats/summary?only_cpu_and_memory=true", &s)
}

// Why asks about one pod, or with an empty name about everything that is not fine.
func (c *Client) Why(ctx context.Context, namespace, name string) (why.Answer, error) {
	path := localapi.Self("why") + "?" + url.Values{"namespace": {namespace}}.Encode()
	if name != "" {
		path = localapi.PodReport(namespace, name, "why")
	}
	var a why.Answer
	return a, c.getJSON(ctx, path, &a)
}

// Objects returns objects besides pods, as JSON.
func (c *Client) Objects(ctx context.Context, q localapi.ObjectQuery) ([]json.RawMessage, error) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	return list.Items, c.getJSON(ctx, documents(q), &list)
}

// Table returns objects of one kind besides pods as kubectl prints them.
func Table(ctx context.Context, c *Client, q localapi.ObjectQuery) (*metav1.Table, error) {
	t := &metav1.Table{}
	err := c.getJSON(ctx, documents(q)+"&as=Table", t)
	if err == nil && t.Kind != "Table" {
		err = errOlder(localapi.Self("documents"))
	}
	return t, err
}

func documents(q localapi.ObjectQuery) string {
	return localapi.Self("documents") + "?" + url.Values{"kind": {q.Kind}, "namespace": {q.Namespace}, "name": {q.Name}}.Encode()
}

// Events lists events, the oldest first.
func (c *Client) Events(ctx context.Context, f events.Filter) (*corev1.EventList, error) {
	list := &corev1.EventList{}
	return list, c.getJSON(ctx, localapi.EventsPath(f, url.Values{}), list)
}

// WatchEvents calls each with the events that there are and then with each that is new or came again, until ctx ends or
// each returns an error.
func (c *Client) WatchEvents(ctx context.Context, f events.Filter, each func(localapi.EventChange) error) error {
	return follow(ctx, c, localapi.EventsPath(f, url.Values{"watch": {"true"}}), each)
}

// History returns the revisions of a pod.
func (c *Client) History(ctx context.Context, namespace, name string) (*localapi.History, error) {
	h := &localapi.History{}
	return h, c.getJSON(ctx, localapi.PodReport(namespace, name, "history"), h)
}

// Rollback takes a pod to a revision; see RollbackRequest.
func (c *Client) Rollback(ctx context.Context, namespace, name string, to int) (*localapi.History, error) {
	h := &localapi.History{}
	return h, c.send(ctx, http.MethodPost, localapi.PodReport(namespace, name, "rollback"), localapi.RollbackRequest{To: to}, h)
}

// Schedule reports whether pods may run.
func (c *Client) Schedule(ctx context.Context) (localapi.Schedule, error) {
	var s localapi.Schedule
	return s, c.getJSON(ctx, localapi.Self("drain"), &s)
}

// WatchSchedule calls each with the Schedule of now and with each other one, until ctx ends or each returns an error.
func (c *Client) WatchSchedule(ctx context.Context, each func(localapi.Schedule) error) error {
	return follow(ctx, c, localapi.Self("drain")+"?watch=true", func(e localapi.ScheduleEvent) error { return each(e.Object) })
}

// Cordon is that of Scheduler.
func (c *Client) Cordon(ctx context.Context, r localapi.DrainRequest) (localapi.Schedule, error) {
	return reschedule(ctx, c, http.MethodPut, localapi.Self("cordon"), r)
}

// Drain is that of Scheduler.
func (c *Client) Drain(ctx context.Context, r localapi.DrainRequest) (localapi.Schedule, error) {
	return reschedule(ctx, c, http.MethodPut, localapi.Self("drain"), r)
}

// Undrain is that of Scheduler.
func (c *Client) Undrain(ctx context.Context) (localapi.Schedule, error) {
	return reschedule(ctx, c, http.MethodDelete, localapi.Self("drain"), struct{}{})
}

func reschedule(ctx context.Context, c *Client, method, path string, request any) (s localapi.Schedule, err error) {
	err = c.send(ctx, method, path, request, &s)
	return s, err
}

// Kubeconfig returns a kubeconfig with a new client certificate for monopod's Kubernetes API.
func Kubeconfig(ctx context.Context, c *Client, r localapi.KubeconfigRequest) (k localapi.Kubeconfig, err error) {
	err = c.send(ctx, http.MethodPost, localapi.Self("kubeconfig"), r, &k)
	return k, err
}

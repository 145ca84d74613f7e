package node

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/events"
	"monopod/node/localapi"
)

// recorded returns a machine and the record of its events.
func recorded(t *testing.T) (*machine, *events.Recorder) {
	t.Helper()
	r := events.New(events.Config{Dir: t.TempDir(), Node: "edge"})
	return &machine{events: r}, r
}

func tell(r *events.Recorder, namespace, name, reason string) {
	r.Event(corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name}, corev1.EventTypeNormal, reason, "text")
}

func TestEventsAreListedAsAV1EventList(t *testing.T) {
	m, r := recorded(t)
	tell(r, "a", "web", "One")
	tell(r, "b", "web", "Two")
	r.Event(events.NodeRef("edge"), corev1.EventTypeWarning, "Three", "text")
	for query, want := range map[string]string{
		"":                          "One Two Three",
		"?namespace=b":              "Two",
		"?namespace=a&name=web":     "One",
		"?kind=Node":                "Three",
		"?name=nobody":              "",
		"?kind=Pod&name=web&watch=": "One Two",
	} {
		w := httptest.NewRecorder()
		m.server().Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/apis/monopod.dev/v1alpha1/agents/self/events"+query, nil))
		var list corev1.EventList
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for _, e := range list.Items {
			reasons = append(reasons, e.Reason)
		}
		if got := strings.Join(reasons, " "); got != want || list.Kind != "EventList" || list.APIVersion != "v1" || list.Items == nil {
			t.Errorf("%q: %q, wanted %q: %s", query, got, want, w.Body)
		}
	}
}

func TestAWatchOfEventsTellsWhatIsNewAndWhatCameAgain(t *testing.T) {
	m, r := recorded(t)
	tell(r, "a", "web", "Old")
	tell(r, "b", "web", "Other")
	c, stop := serve(t, m)
	got := make(chan string, 10)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		done <- c.WatchEvents(ctx, events.Filter{Namespace: "a"}, func(e localapi.EventChange) error {
			got <- e.Type + " " + e.Object.Reason
			return nil
		})
	}()
	next := func(want string) {
		t.Helper()
		if g := <-got; g != want {
			t.Errorf("%s, wanted %s", g, want)
		}
	}
	next("ADDED Old")
	tell(r, "b", "web", "Other")
	tell(r, "a", "db", "New")
	next("ADDED New")
	tell(r, "a", "web", "Old")
	next("MODIFIED Old")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended by the client: %v", err)
	}
	if list, err := c.Events(t.Context(), events.Filter{Name: "db"}); err != nil || len(list.Items) != 1 {
		t.Errorf("list: %+v, %v", list, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := c.Events(t.Context(), events.Filter{}); err == nil {
		t.Error("events without a server")
	}
}

func TestAWatchForgetsTheNamesOfEventsThatAreNoMore(t *testing.T) {
	m, r := recorded(t)
	tell(r, "a", "web", "Old")
	told, f := map[string]bool{}, events.Filter{}
	for i := range maxTold {
		told[strconv.Itoa(i)] = true
	}
	types := func() string {
		var out []string
		for _, e := range m.server().eventChanges(&f, told) {
			out = append(out, e.Type)
		}
		return strings.Join(out, " ")
	}
	if got := types(); got != "ADDED" {
		t.Errorf("at first: %s", got)
	}
	tell(r, "a", "web", "Old")
	tell(r, "a", "web", "New")
	if got := types(); got != "MODIFIED ADDED" || len(told) != 2 {
		t.Errorf("then: %s, %d names", got, len(told))
	}
	if got := types(); got != "" {
		t.Errorf("without a change: %s", got)
	}
}

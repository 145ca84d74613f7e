package node

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"monopod/internal/cause"
	"monopod/node/why"
)

// oracle is Whys.
type oracle struct {
	asked chan string
	errs  []error
}

func (o *oracle) Why(_ context.Context, namespace, name string) (why.Answer, error) {
	o.asked <- namespace + "/" + name
	var err error
	if len(o.errs) > 0 {
		err, o.errs = o.errs[0], o.errs[1:]
	}
	return why.Answer{Text: "because", Chains: []why.Chain{{Pod: namespace + "/" + name, Steps: []why.Step{{Kind: why.Cause, Reason: cause.Exited, Text: "it ended"}}}}}, err
}

func TestWhyIsAskedForOnePodOrForAll(t *testing.T) {
	for name, c := range map[string]struct {
		namespace, name string
		errs            []error
		wantErr         string
	}{
		"one":                       {namespace: "shop", name: "web"},
		"all":                       {},
		"all of a namespace":        {namespace: "shop"},
		"an answer is not possible": {errs: []error{errors.New("no")}, wantErr: "no"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &oracle{asked: make(chan string, 8), errs: c.errs}
			client, _ := serve(t, &machine{whys: o})
			a, err := client.Why(t.Context(), c.namespace, c.name)
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("error %v", err)
				}
				return
			}
			if err != nil || a.Text != "because" || a.Chains[0].Steps[0].Reason != cause.Exited {
				t.Errorf("%+v, %v", a, err)
			}
			if got := <-o.asked; got != c.namespace+"/"+c.name {
				t.Errorf("asked for %q", got)
			}
		})
	}
}

func TestWhyWaitsForADaemonThatStarts(t *testing.T) {
	o := &oracle{asked: make(chan string, 8), errs: []error{ErrStarting}}
	m := &machine{whys: o}
	s := m.server()
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/apis/monopod.dev/v1alpha1/agents/self/why", nil))
		done <- w
	}()
	<-o.asked
	m.subscriptions(t, 1)
	m.set() // it has looked around
	if w := <-done; w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "because") {
		t.Errorf("code %d: %s", w.Code, w.Body)
	}
}

package cause_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"monopod/internal/cause"
)

func TestACauseTravelsWithAnError(t *testing.T) {
	plain := errors.New("no such file")
	inner := cause.Wrap(plain, cause.Cause{Kind: cause.HostPath, Path: "/srv"})
	outer := cause.Wrap(fmt.Errorf("volume v: %w", inner), cause.Cause{Kind: cause.Mount})
	for name, tt := range map[string]struct {
		err  error
		want cause.Kind
	}{
		"none":              {nil, ""},
		"unknown":           {plain, ""},
		"direct":            {inner, cause.HostPath},
		"below other words": {fmt.Errorf("check pod: %w", inner), cause.HostPath},
		"joined":            {errors.Join(plain, inner), cause.HostPath},
		"the outermost":     {fmt.Errorf("check pod: %w", outer), cause.Mount},
	} {
		if got := cause.Of(tt.err).Kind; got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if !errors.Is(outer, plain) || outer.Error() != "volume v: no such file" {
		t.Errorf("the error itself changed: %v", outer)
	}
	if err := cause.Wrap(nil, cause.Cause{Kind: cause.Mount}); err != nil {
		t.Errorf("nil became %v", err)
	}
}

func TestACauseSurvivesStorage(t *testing.T) {
	for text, c := range map[string]cause.Cause{
		`{}`: {},
		`{"kind":"MissingKey","container":"app","object":{"kind":"ConfigMap","name":"settings"},"key":"color"}`: {
			Kind: cause.MissingKey, Container: "app", Object: cause.Object{Kind: cause.ConfigMap, Name: "settings"}, Key: "color",
		},
		`{"kind":"Evicted","resource":"memory","detail":"The node was low on resource: memory."}`: {
			Kind: cause.Evicted, Resource: "memory", Detail: "The node was low on resource: memory.",
		},
	} {
		b, err := json.Marshal(c)
		if err != nil || string(b) != text {
			t.Errorf("%s %v, want %s", b, err, text)
		}
		var back cause.Cause
		if err := json.Unmarshal(b, &back); err != nil || back != c {
			t.Errorf("%s became %+v %v", b, back, err)
		}
	}
}

package fetch

import (
	"errors"
	"slices"
	"testing"

	"monopod/internal/model"
	"monopod/manifests"
)

func TestDocumentsThatWereRefusedAreKnownByName(t *testing.T) {
	err := &Refusal{errors.Join(
		&manifests.Error{File: "https://fleet/x", Line: 32, Column: 5, Pod: "shop/web", Field: "spec.containers[0].imag", Msg: "unknown field"},
		&manifests.Error{File: "https://fleet/x", Line: 40, Kind: "Deployment", Pod: "shop/db", Msg: "Required value"},
		&manifests.Error{File: "https://fleet/x", Line: 50, Kind: "ConfigMap", Pod: "shop/settings", Msg: "no"},
		&manifests.Error{File: "https://fleet/x", Line: 60, Msg: "not YAML"},
		errors.New("something else"),
	)}
	want := []model.Mistaken{
		{ObjectID: manifests.ObjectID{Kind: "Pod", Namespace: "shop", Name: "web"}, Where: "https://fleet/x:32"},
		{ObjectID: manifests.ObjectID{Kind: "Deployment", Namespace: "shop", Name: "db"}, Where: "https://fleet/x:40"},
	}
	if got := mistaken(err); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := mistaken(errors.New("answered 503 Service Unavailable")); got != nil {
		t.Errorf("%+v", got)
	}
}

package sharing_test

import (
	"testing"

	"monopod/internal/cause"
	"monopod/internal/sharing"
	"monopod/manifests"
)

func TestAnObjectOfAnotherSpaceIsNamedWithTheLineThatSharesIt(t *testing.T) {
	id := manifests.ObjectID{Kind: "Secret", Namespace: "shop", Name: "login"}
	refs := &manifests.Refs{Reader: "fleet", Hidden: map[manifests.ObjectID]string{id: "applied"}}
	err := sharing.Refused(refs, id)
	want := "Secret shop/login is not shared: it belongs to source applied, and pods of source fleet may use it only with sharing: {fleet: [applied/shop]} in the configuration"
	if err == nil || err.Error() != want {
		t.Error(err)
	}
	object := cause.Object{Kind: "Secret", Namespace: "shop", Name: "login"}
	if c := cause.Of(err); c != (cause.Cause{Kind: cause.NotShared, Owner: "applied", Reader: "fleet", Object: object}) {
		t.Errorf("%+v", c)
	}
	id.Name = "other"
	if err := sharing.Refused(refs, id); err != nil {
		t.Error(err)
	}
	if err := sharing.Refused(nil, id); err != nil {
		t.Error(err)
	}
}

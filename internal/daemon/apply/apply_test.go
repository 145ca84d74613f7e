package apply

import (
	"testing"

	"monopod/node/localapi"
)

func TestANameThatIsAPathIsRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []localapi.ObjectRef{{Kind: "Pod", Namespace: "default", Name: "/../../x"}, {Kind: "Pod", Namespace: "../x", Name: "y"}, {Kind: "/..", Name: "y"}} {
		if ids, err := deletedIDs(localapi.DeleteRequest{Objects: []localapi.ObjectRef{o}}); err == nil {
			t.Errorf("%+v is %v", o, ids)
		}
	}
}

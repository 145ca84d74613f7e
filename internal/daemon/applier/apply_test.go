package applier

import (
	"testing"

	"monopod/node"
)

func TestANameThatIsAPathIsRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []node.ObjectRef{{Kind: "Pod", Namespace: "default", Name: "/../../x"}, {Kind: "Pod", Namespace: "../x", Name: "y"}, {Kind: "/..", Name: "y"}} {
		if ids, err := deletedIDs(node.DeleteRequest{Objects: []node.ObjectRef{o}}); err == nil {
			t.Errorf("%+v is %v", o, ids)
		}
	}
}

package pull

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
)

func TestErrorsThatDamagedContentCanCause(t *testing.T) {
	syntax := json.Unmarshal(nil, new(any))
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no error":         {nil, false},
		"the network":      {errors.New("dial tcp: connection refused"), false},
		"no such tag":      {errors.New("example.com/a:1: not found"), false},
		"a manifest":       {fmt.Errorf("pull: %w", syntax), true},
		"a layer":          {errors.New(`failed to extract layer sha256:1: unexpected EOF`), true},
		"an empty layer":   {errors.New(`unpack: wrong diff id calculated on extraction "sha256:2"`), true},
		"another diff id":  {errors.New("no diff ids"), false},
		"joined with more": {errors.Join(errors.New("no login"), syntax), true},
	} {
		if got := failedOnContent(c.err); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

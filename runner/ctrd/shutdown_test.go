package ctrd

import (
	"reflect"
	"testing"
)

func TestWhatIsInDoubtAfterAStart(t *testing.T) {
	sound := []string{"a"}
	for name, c := range map[string]struct{ last, want shutdown }{
		"the first run":                      {shutdown{}, shutdown{Boot: "now"}},
		"stopped":                            {shutdown{Boot: "now", Clean: true}, shutdown{Boot: "now"}},
		"killed":                             {shutdown{Boot: "now"}, shutdown{Boot: "now"}},
		"stopped, rebooted":                  {shutdown{Boot: "then", Clean: true}, shutdown{Boot: "now"}},
		"power cut":                          {shutdown{Boot: "then"}, shutdown{Boot: "now", Doubt: true}},
		"power cut, then killed":             {shutdown{Boot: "now", Doubt: true, Sound: sound}, shutdown{Boot: "now", Doubt: true, Sound: sound}},
		"power cut, stopped, rebooted":       {shutdown{Boot: "then", Clean: true, Doubt: true, Sound: sound}, shutdown{Boot: "now", Doubt: true, Sound: sound}},
		"a power cut before all were sound":  {shutdown{Boot: "then", Doubt: true, Sound: sound}, shutdown{Boot: "now", Doubt: true}},
		"a file that cannot be read is none": {shutdown{Boot: "unknown"}, shutdown{Boot: "now", Doubt: true}},
	} {
		if got := c.last.next("now"); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

package oci

import "testing"

func TestMapsIDs(t *testing.T) {
	for text, want := range map[string]bool{
		`{"linux": {"mountExtensions": {"idmap": {"enabled": true}}}}`:  true,
		`{"linux": {"mountExtensions": {"idmap": {"enabled": false}}}}`: false,
		`{"ociVersionMin": "1.0.0", "linux": {}}`:                       false,
		`nonsense`: false,
	} {
		if got, _ := parseFeatures([]byte(text)); got.mapsIDs != want {
			t.Errorf("%s: %t", text, got.mapsIDs)
		}
	}
}

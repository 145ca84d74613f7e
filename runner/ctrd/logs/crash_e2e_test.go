//go:build e2e

package logs

import "testing"

func TestKilledAThousandTimesNothingIsLostOrDoubled(t *testing.T) {
	killUnderLoad(t, 1000)
}

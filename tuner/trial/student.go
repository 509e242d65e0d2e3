package trial

import "math"

// studentQuantile returns t with P(T > t) = upper for Student's distribution
// with dof degrees of freedom, dof ≥ 1, 0 < upper < 0.5: G. W. Hill, Algorithm
// 396, CACM 13 (1970), accurate to 5 digits and more.
func studentQuantile(upper, dof float64) float64 {
	two := 2 * upper // Hill's argument is two-tailed
	switch {
	case dof < 1.5:
		return math.Cos(two*math.Pi/2) / math.Sin(two*math.Pi/2)
	case math.Abs(dof-2) < 1e-9:
		return math.Sqrt(2/(two*(2-two)) - 2)
	}
	a := 1 / (dof - 0.5)
	b := 48 / (a * a)
	c := ((20700*a/b-98)*a-16)*a + 96.36
	d := ((94.5/(b+c)-3)/b + 1) * math.Sqrt(a*math.Pi/2) * dof
	x := d * two
	y := math.Pow(x, 2/dof)
	if y > 0.05+a {
		x = -math.Sqrt2 * math.Erfcinv(two) // normal quantile of two/2, negative
		y = x * x
		if dof < 5 {
			c += 0.3 * (dof - 4.5) * (x + 0.6)
		}
		c += (((0.05*d*x-5)*x-7)*x-2)*x + b
		y = (((((0.4*y+6.3)*y+36)*y+94.5)/c-y-3)/b + 1) * x
		return math.Sqrt(dof * math.Expm1(a*y*y))
	}
	y = ((1/(((dof+6)/(dof*y)-0.089*d-0.822)*(dof+2)*3)+0.5/(dof+4))*y-1)*(dof+1)/(dof+2) + 1/y
	return math.Sqrt(dof * y)
}

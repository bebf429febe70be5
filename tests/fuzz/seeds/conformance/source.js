// @xfail: a known failure
console.log(1)

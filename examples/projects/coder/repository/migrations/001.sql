create table orders (id integer);
